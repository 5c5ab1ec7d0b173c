"""Each promise is broken by hand, one after the other, and the checker says so: a check that
can't fail proves nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.house import ROOT
from tests.invariants import NAMES, Bounds, check
from tests.invariants.breaks import AGAIN, BREAKS, CLAIMED, JOB, UNGUARDED, VENDORS_EVENT
from tests.invariants.check import QUESTIONS, statements
from tests.invariants.journals import exposure
from tests.invariants.whole import Whole
from vpay_tasks.core.kinds import BUILT_IN
from vpay_tasks.store.db import connect


def test_a_whole_database_breaks_no_promise_twice_over(made: Whole) -> None:
    for _ in range(2):
        found = check(made.connection, **made.evidence, bounds=SLOW)
        assert found == {name: [] for name in NAMES}


SLOW = Bounds(margin=600)
"""The one database grows old while the tests run: its own rows may be due for as long."""


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_a_promise_is_told(whole: Whole, name: str) -> None:
    breaking, told = BREAKS[name]
    whole.connection.execute(breaking.encode())
    # A row of an unguarded table may break what others promise, too.
    found = check(whole.connection, **whole.evidence, at_rest=name.endswith("at_rest"))
    invariant = name.partition("_")[0].upper()
    assert any(told in sentence for sentence in found[invariant]), found


def test_every_check_of_the_database_is_broken_here() -> None:
    known = {one.name for one in statements()}
    broken = {name.partition(" ")[0] for name in BREAKS}
    assert broken <= known
    assert known - broken == {"i12_no_transaction_idles", "i12_nothing_is_held_at_rest"}
    asked = {name.partition("_")[0].upper() for name in known} | QUESTIONS.keys()
    assert asked == set(NAMES)


Change = Callable[[dict[str, Any]], object]


def _more(field: str, **line: Any) -> Change:
    return lambda evidence: evidence[field].append(line)


def _again(field: str, place: int, **change: Any) -> Change:
    return lambda evidence: evidence[field].append({**evidence[field][place], **change})


def _without(field: str, place: int) -> Change:
    return lambda evidence: evidence[field].pop(place)


FACT = {"vendor": "stripe", "account": "", "event": "e9", "status": 200}
OUTSIDE: dict[str, tuple[str, Change, str]] = {
    "a commit that is gone": (
        "I1",
        _more("producer", order="9", what="charge", id="ch_gone", how="committed"),
        "the charge ch_gone was committed and is gone",
    ),
    "a refusal that was committed": (
        "I1",
        _again("producer", 0, order="9", how="refused"),
        "was refused and is there",
    ),
    "a delivery nobody got": ("I5", _without("receivers", 0), "its receiver answered no 2xx"),
    "a post of nothing": ("I5", _again("receivers", 0, event="evt_0"), "there is no delivery"),
    "other bytes": ("I6", _again("receivers", 0, sha256="00"), "was posted with 2 bodies"),
    "a bad signature": (
        "I6",
        _again("receivers", 0, verified=False, why="stripe refuses"),
        "did not verify: stripe refuses",
    ),
    "a second prompt": ("I10", _again("rail", 1), "had the effect 'prompt' 2 times"),
    "money moved twice": ("I10", _again("rail", 2), "had the effect 'moved' 2 times"),
    "money moved for nobody": ("I10", _again("rail", 2, reference="r9"), "and no charge has"),
    "success without money": ("I10", _without("rail", 2), "succeeded, and the rail moved nothing"),
    "a 2xx before the commit": (
        "I11",
        _more("vendors", **FACT),
        "was answered 200 and is not kept",
    ),
    "a second effect": (
        "I11",
        lambda evidence: evidence["grants"].update({("stripe", "", "e9"): 2}),
        "had its effect 2 times",
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_journal_that_tells_another_story_is_told(whole: Whole, case: str) -> None:
    invariant, change, told = OUTSIDE[case]
    change(whole.evidence)
    found = check(whole.connection, **whole.evidence)
    assert any(told in sentence for sentence in found[invariant]), found
    assert [name for name in NAMES if found[name]] == [invariant]


def test_a_done_vendors_event_without_its_effect_is_told(whole: Whole) -> None:
    done = VENDORS_EVENT.format(more=", state, verdict, ended_at", values=", 'done', 'ok', now()")
    whole.connection.execute(done.encode())
    assert check(whole.connection, **whole.evidence)["I11"] == [
        "event e1 of stripe is done and had no effect"
    ]


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (
            '"amount_received":1000',
            '"amount_received":1001',
            "amount received 1001, and it is 1000",
        ),
        ('"code":"payer_timeout"', '"code":"payer_declined"', "failure code 'payer_declined'"),
        ('"object":"event"', "", "can't be read: JSONDecodeError"),
    ],
)
def test_an_event_that_tells_another_story_is_told(
    whole: Whole, was: str, now: str, told: str
) -> None:
    whole.connection.execute(
        "UPDATE vpay.events SET body = convert_to(replace(convert_from(body, 'UTF8'), %s, %s),"
        " 'UTF8')",
        (was, now),
    )
    assert any(told in sentence for sentence in check(whole.connection, **whole.evidence)["I4"])


def test_submissions_beyond_the_first_are_exposure_and_no_violation(whole: Whole) -> None:
    rail = whole.evidence["rail"]
    rail.append(rail[0])
    assert exposure(rail) == 1
    assert check(whole.connection, **whole.evidence)["I10"] == []


@pytest.mark.parametrize(
    ("late", "told"),
    [
        ("run_at = now() - interval '1 hour'", "is due and 36"),
        (f"{CLAIMED} - interval '1 hour'", "is claimed and 36"),
        (f"{CLAIMED} - interval '1 hour', started_at = now()", "is running and 36"),
    ],
)
def test_what_waits_too_long_is_told(whole: Whole, late: str, told: str) -> None:
    whole.connection.execute(f"UPDATE vpay.jobs SET {late} WHERE id = {JOB}".encode())
    (sentence,) = check(whole.connection, **whole.evidence, bounds=SLOW)["I7"]
    assert told in sentence
    assert check(whole.connection, **whole.evidence, bounds=replace(SLOW, lag=7_200))["I7"] == []


def test_a_closed_lane_waits_on_purpose(whole: Whole) -> None:
    whole.connection.execute(
        b"INSERT INTO vpay.lanes (queue, lane, paused) VALUES ('default', 'l', true);"
        b" UPDATE vpay.jobs SET lane = 'l', run_at = now() - interval '1 hour' WHERE id = "
        + JOB.encode()
    )
    assert check(whole.connection, **whole.evidence, bounds=SLOW)["I7"] == []


def test_a_transaction_that_idles_is_told(made: Whole, eventually: Any) -> None:
    with connect(made.database.url, application="vpay worker") as session:
        session.execute("BEGIN")
        session.execute("SELECT 1")
        (told,) = eventually(lambda: check(made.connection)["I12"])
        assert "(vpay worker) has been idle in a transaction since" in told
        # In the same words at each look: a soak takes for broken what it is told twice.
        since = "SELECT state_change::text FROM pg_stat_activity WHERE pid = %s"
        row = made.connection.execute(since, (session.info.backend_pid,)).fetchone()
        assert row is not None
        assert told.endswith(f"since {row[0]}")
        session.execute("ROLLBACK")
    assert check(made.connection)["I12"] == []


def test_a_session_that_outlives_its_process_is_told(made: Whole) -> None:
    with connect(made.database.url, application="vpay worker w_1") as session:
        session.execute("SELECT pg_advisory_lock(1)")
        assert check(made.connection)["I12"] == []
        told = " ".join(check(made.connection, ended=True)["I12"])
        assert "(vpay worker w_1) is still there, with 1 advisory locks" in told


def test_a_secret_that_can_be_read_is_told(whole: Whole, tmp_path: Path) -> None:
    canaries = {"the broker's password": "canary-4711", "a key": "canary-4712"}
    log = tmp_path / "logs" / "worker.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (1 << 20) + b"redis://w:canary-4711@host")
    asked = {**whole.evidence, "canaries": canaries, "artefacts": tmp_path}
    assert check(whole.connection, **asked)["I13"] == [
        "the broker's password is readable in logs/worker.log"
    ]
    whole.connection.execute(b"UPDATE vpay.events SET body = body || 'canary-4712'")
    whole.connection.execute(
        f"UPDATE vpay.jobs SET last_error = 'canary-4711' WHERE id = {JOB}".encode()
    )
    assert check(whole.connection, **asked)["I13"] == [
        "a key is readable in 2 rows of vpay.events.body",
        "the broker's password is readable in 1 rows of vpay.jobs.last_error",
        "the broker's password is readable in logs/worker.log",
    ]


def test_a_fee_that_was_kept_of_a_charge_is_part_of_what_it_brought_in(whole: Whole) -> None:
    kept = AGAIN.format(kind="'fee'", credit="'platform_fee_revenue'", amount=30)
    whole.connection.execute((UNGUARDED + kept).encode())
    whole.connection.execute(b"UPDATE vpay.ledger_entries SET amount = 970 WHERE kind = 'capture'")
    assert check(whole.connection, **whole.evidence)["I14"] == []


def test_the_checker_knows_every_kind_that_may_never_be_parked() -> None:
    (asked,) = (one for one in statements() if one.name == "i8_protected_kinds_are_never_parked")
    assert all(f"'{name}'" in asked.text for name, kind in BUILT_IN.items() if kind.protected)


def test_the_checker_imports_nothing_of_what_it_judges() -> None:
    """Or a mistake of the one would be the other's, too."""
    asked = "import sys, tests.invariants; print([m for m in sys.modules if m[:5] == 'vpay_'])"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
