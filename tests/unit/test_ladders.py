"""Delays between attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpay_tasks.config import LaddersTable
from vpay_tasks.core.ladders import DEFAULT, Ladder

COUNTS = st.integers(-5, 10**6)
SPREADS = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("count", "delay"),
    [(-1, 5), (0, 5), (1, 15), (2, 60), (3, 300), (4, 900), (5, 3_600), (6, 3_600), (10**6, 3_600)],
)
def test_the_default_ladder_climbs_and_stays_on_its_last_rung(count: int, delay: float) -> None:
    assert DEFAULT.delay(count) == delay


def test_the_settings_default_is_the_same_ladder() -> None:
    assert LaddersTable().error == DEFAULT.rungs


@given(COUNTS, SPREADS)
def test_jitter_only_adds_and_at_most_a_tenth(count: int, spread: float) -> None:
    rung = DEFAULT.delay(count)
    assert rung <= DEFAULT.delay(count, spread) <= rung * 1.1


@given(COUNTS, st.sampled_from(["error", "poll", "delivery"]))
def test_a_later_failure_waits_no_shorter_at_any_count(count: int, name: str) -> None:
    rungs = getattr(LaddersTable(), name)
    ladder = Ladder(rungs, jitter=0)
    assert rungs[0] <= ladder.delay(count) <= ladder.delay(count + 1) <= rungs[-1]


def test_the_poll_ladder_is_the_contracts() -> None:
    ladder = Ladder(LaddersTable().poll, jitter=0)
    assert [ladder.delay(n) for n in range(6)] == [10, 20, 30, 45, 60, 90]
    assert {ladder.delay(n) for n in range(6, 20)} == {120}
    assert {ladder.delay(n) for n in (20, 21, 10**6)} == {900}


def test_the_delivery_ladder_spans_31_hours_12_minutes_40_seconds() -> None:
    rungs = LaddersTable().delivery
    assert list(rungs) == [10, 30, 120, 600, 3_600, 21_600, 86_400]
    assert sum(rungs) == 31 * 3_600 + 12 * 60 + 40
