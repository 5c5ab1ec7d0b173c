"""The delivery ladder and its companions, as pure functions."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpay_tasks.config import LaddersTable
from vpay_tasks.core.delivery import Check, Outcome, Stamp, check, next_delay, outcome, wish

RUNGS = LaddersTable().delivery
NOW = 1_764_000_000.0
COUNTS = st.integers(0, 10**6)
SPREAD = st.floats(0, 1, exclude_max=True)


def test_the_ladder_without_jitter_is_eight_posts_over_31_hours_12_minutes_40_seconds() -> None:
    delays = [next_delay(RUNGS, recorded, spread=0.0) for recorded in range(8)]
    assert delays == [10, 30, 120, 600, 3_600, 21_600, 86_400, None]
    assert sum(delay for delay in delays if delay) == 31 * 3_600 + 12 * 60 + 40


@given(recorded=COUNTS, spread=SPREAD)
def test_jitter_only_adds_and_at_most_a_tenth(recorded: int, spread: float) -> None:
    delay = next_delay(RUNGS, recorded, spread=spread)
    if recorded >= 7:
        assert delay is None
    else:
        assert delay is not None
        assert RUNGS[recorded] <= delay <= RUNGS[recorded] * 1.1


@given(
    recorded=COUNTS,
    spread=SPREAD,
    status=st.sampled_from([None, 200, 302, 400, 429, 500, 503]),
    retry_after=st.one_of(st.none(), st.text(max_size=60), st.integers().map(str)),
)
def test_whatever_retry_after_says_the_next_attempt_lies_between_its_rung_and_the_next(
    recorded: int, spread: float, status: int | None, retry_after: str | None
) -> None:
    delay = next_delay(
        RUNGS, recorded, spread=spread, status=status, retry_after=retry_after, now=NOW
    )
    if recorded >= 7:
        assert delay is None
        return
    ceiling = (*RUNGS, 86_400.0)[recorded + 1]
    assert delay is not None
    assert math.isfinite(delay)
    assert RUNGS[recorded] <= delay <= max(ceiling, RUNGS[recorded] * 1.1)


@pytest.mark.parametrize(
    "garbage",
    [
        "", "soon", "0", "-5", "1.5", "1e9", "+20", "2 0", "٢٠", "9999999999", "9223372037",
        "99999999999999999999", "9" * 400, "Wed, 21 Oct 2015 07:28:00 GMT", "nan", "inf",
        "Wed, 21 Oct 99999 07:28:00 GMT", "Wed, 99 Oct 2030 99:99:99 GMT", "20, 30", "\x00",
        "Wed, 21 Oct 2030 07:28:00",
    ],
)  # fmt: skip
def test_a_retry_after_that_nobody_can_mean_is_the_rung(garbage: str) -> None:
    assert next_delay(RUNGS, 0, spread=0.0, status=429, retry_after=garbage, now=NOW) == 10


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_in_seconds_lengthens_the_rung_up_to_the_next(status: int) -> None:
    def after(text: str) -> float | None:
        return next_delay(RUNGS, 1, spread=0.0, status=status, retry_after=text, now=NOW)

    assert after("29") == 30
    assert after(" 31 ") == 31
    assert after("120") == 120
    assert after("3600") == 120


def test_retry_after_as_a_date_is_compared_with_the_clock_that_is_given() -> None:
    date = format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True)
    assert next_delay(RUNGS, 1, spread=0.0, status=503, retry_after=date, now=NOW) == 90


@pytest.mark.parametrize("zone", ["", " -0000"])
def test_a_date_without_a_zone_is_no_wish_whatever_this_machines_zone(zone: str) -> None:
    assert wish(f"Wed, 26 Nov 2025 16:00:00{zone}", NOW) is None
    assert wish("Wed, 26 Nov 2025 16:00:00 GMT", NOW) == 2 * 86_400


def test_retry_after_means_nothing_with_another_status() -> None:
    assert next_delay(RUNGS, 1, spread=0.0, status=500, retry_after="100", now=NOW) == 30


def test_the_last_rung_stretches_to_a_day_at_most() -> None:
    def last(text: str) -> float | None:
        return next_delay((1.0, 2.0), 1, spread=0.0, status=429, retry_after=text, now=NOW)

    assert last("5000") == 5_000
    assert last("200000") == 86_400


@given(st.text())
def test_reading_a_retry_after_never_raises_and_never_asks_for_the_past(text: str) -> None:
    seconds = wish(text, NOW)
    assert seconds is None or seconds > 0


def test_only_a_2xx_delivers_and_only_a_410_is_gone() -> None:
    delivered = {s for s in range(100, 600) if outcome(s) is Outcome.DELIVERED}
    assert delivered == set(range(200, 300))
    assert [s for s in range(100, 600) if outcome(s) is Outcome.GONE] == [410]
    assert outcome(None) is Outcome.FAILED


def test_the_same_bytes_at_the_same_revision_are_sent_and_others_are_poisoned() -> None:
    stamped = Stamp(b"a", 2)
    assert check(None, stamped) is Check.STAMP_FIRST
    assert check(stamped, Stamp(b"a", 2)) is Check.SEND
    assert check(stamped, Stamp(b"b", 2)) is Check.POISONED
    assert check(stamped, Stamp(b"b", 3)) is Check.STAMP_FIRST
    assert check(stamped, Stamp(b"a", 1)) is Check.POISONED
