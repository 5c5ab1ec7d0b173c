"""The same for what comes before a run: claims, marks, nudges and what was parked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.factories import a_worker, as_a_dispatcher
from tests.store.job_rows import CLAIMED, RUNNING, a_row, bystanders, everything, in_the_future
from tests.store.tables import changes
from vpay_tasks.core.task import Kind
from vpay_tasks.store import claims, jobs
from vpay_tasks.store.db import Connection, Database


def test_only_what_was_parked_under_a_key_is_taken_up_again(database: Database) -> None:
    bystanders(database)
    waits = a_row(database, dedupe_key="waits")
    parked = (
        "parked_at = now(), dead_reason = 'crashed', crashes = 5, unknown_since = now(),"
        " due = false"
    )
    mine = a_row(database, parked, dedupe_key="mine", lane="a")
    a_row(database, parked, dedupe_key="other")
    before = everything(database)
    with database.connection() as connection:
        assert not jobs.unpark(connection, "waits")
        assert jobs.unpark(connection, "mine")
    told = changes(before, everything(database))
    assert waits not in told
    assert in_the_future(told[mine].pop("run_at"), 0)
    taken_up = {"parked_at": None, "dead_reason": None, "unknown_since": None}
    assert told == {mine: {**taken_up, "failures": 0, "crashes": 0, "due": True}}


def test_only_rows_that_were_parked_for_want_of_their_kind_are_adopted(database: Database) -> None:
    bystanders(database)
    parked = "parked_at = now(), dead_reason = 'unknown_kind', unknown_since = now(), due = false"
    mine = a_row(database, parked, lane="a")
    plain = a_row(database, parked)
    a_row(database, parked, kind="still_unknown")
    before = everything(database)
    with database.connection() as connection:
        assert set(jobs.adopt_unknown(connection, ["a_kind"])) == {mine, plain}
    told = changes(before, everything(database))
    adopted = {"parked_at": None, "dead_reason": None, "unknown_since": None}
    assert [in_the_future(new.pop("run_at"), 0) for new in told.values()] == [True, True]
    assert told == {mine: {**adopted, "due": True}, plain: adopted}


LATER = "run_at = now() + interval '1 h'"
SOON = f"{LATER}, due = false"


@pytest.mark.parametrize(
    ("assignments", "moved", "new"),
    [
        (SOON, True, {"due": True}),
        ("run_at = now() - interval '1 h'", False, {}),
        (f"{SOON}, parked_at = now(), dead_reason = 'crashed'", False, {}),
        (f"{LATER}, {CLAIMED}", False, {}),
        (f"{LATER}, {RUNNING}", False, {"poked": timedelta(seconds=3)}),
        (f"{LATER}, {RUNNING}, poked = '2 s'", False, {}),
        (f"{LATER}, {RUNNING}, poked = '4 s'", False, {"poked": timedelta(seconds=3)}),
    ],
)
def test_a_nudge_moves_the_row_of_its_key_and_by_its_state(
    database: Database, assignments: str, moved: bool, new: dict[str, Any]
) -> None:
    bystanders(database)
    a_row(database, SOON, dedupe_key="other", lane="a")
    a_row(database, f"{LATER}, {RUNNING}", dedupe_key="another", lane="a")
    mine = a_row(database, assignments, dedupe_key="mine", lane="a")
    before = everything(database)
    with database.connection() as connection:
        stood = jobs.stands_by(connection, "mine", floor=3)
        assert jobs.pull_forward(connection, "mine", floor=3) is not stood
        assert jobs.stands_by(connection, "mine", floor=3)
    told = changes(before, everything(database))
    if moved:
        assert in_the_future(told[mine].pop("run_at"), 0)
    assert told == ({mine: new} if new else {})


def test_a_nudge_for_later_marks_no_lane_and_one_without_a_lane_is_never_marked(
    database: Database,
) -> None:
    laned = a_row(database, SOON, dedupe_key="laned", lane="a")
    plain = a_row(database, SOON, dedupe_key="plain")
    with database.connection() as connection:
        assert jobs.pull_forward(connection, "laned", wait=60)
        assert jobs.pull_forward(connection, "plain")
    found = everything(database)
    assert in_the_future(found[laned]["run_at"] - timedelta(seconds=30), 30)
    assert (found[laned]["due"], found[plain]["due"]) == (False, False)


def test_a_key_that_stands_names_its_own_row(database: Database) -> None:
    bystanders(database)
    a_row(database, dedupe_key="other")
    mine = a_row(database, dedupe_key="mine")
    a_row(database, dedupe_key="another")
    with database.transaction() as tx:
        again = jobs.enqueue(tx, Kind("a_kind", queue="default"), {}, dedupe_key="mine")
    assert (again.id, again.inserted) == (mine, False)


def to_be_claimed(database: Database) -> tuple[int, int]:
    """One due row and one of a lane, among all that a claim must pass over."""
    a_worker(database)
    bystanders(database)
    with database.connection() as connection:
        connection.execute("DELETE FROM vpay.jobs WHERE lease IS NULL AND parked_at IS NULL")
    a_row(database, "run_at = now() + interval '1 h'")
    a_row(database, "run_at = now() + interval '1 h', due = false", lane="b")
    a_row(database, "run_at = now() + interval '1 h', due = true", lane="c")
    a_row(database, "parked_at = now(), dead_reason = 'crashed', due = true", lane="d")
    a_row(database, queue="other")
    a_row(database, queue="other", lane="e")
    return a_row(database), a_row(database, "due = true", lane="f")


def claim(connection: Connection, queue: str = "default", **more: Any) -> claims.Claim:
    due = claims.Due(queue, ready=True, laned=True, waiting=True)
    return claims.claim(connection, due, **as_a_dispatcher(**more))


def test_a_claim_takes_what_is_due_in_its_queue_and_passes_over_the_rest(
    database: Database,
) -> None:
    plain, laned = to_be_claimed(database)
    before = everything(database)
    with database.connection() as connection:
        taken = claim(connection)
    told = changes(before, everything(database))
    assert {id_ for message in taken.messages for id_ in message.ids} == {plain, laned}
    leases_ = {message.ids[0]: message.lease for message in taken.messages}
    for id_, new in told.items():
        assert in_the_future(new.pop("locked_at"), 0)
        assert in_the_future(new.pop("lease_until"), 30)
        assert new == {"lease": leases_[id_], "locked_by": "d_test", "claims": 4}
    assert set(told) == {plain, laned}


def test_only_due_rows_of_its_queues_lanes_are_marked(database: Database) -> None:
    to_be_claimed(database)
    waits = a_row(database, "due = false", lane="g")
    a_row(database, "due = false", lane="g", queue="other")
    a_row(database, "parked_at = now(), dead_reason = 'crashed', due = false", lane="g")
    before = everything(database)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.workers SET draining = true")
        claim(connection)
    assert changes(before, everything(database)) == {waits: {"due": True}}


@pytest.mark.parametrize(
    ("assignments", "options", "seen"),
    [
        ("", {}, (True, False, False)),
        ("due = true", {"lane": "a"}, (False, True, False)),
        ("due = false", {"lane": "a"}, (False, False, True)),
        ("run_at = now() + interval '1 h'", {}, None),
        ("run_at = now() + interval '1 h', due = false", {"lane": "a"}, None),
        ("parked_at = now(), dead_reason = 'crashed'", {}, None),
        ("parked_at = now(), dead_reason = 'crashed', due = true", {"lane": "a"}, None),
        ("parked_at = now(), dead_reason = 'crashed', due = false", {"lane": "a"}, None),
        (CLAIMED, {}, None),
        (CLAIMED.replace("due = false", "due = true"), {"lane": "a"}, None),
        (CLAIMED, {"lane": "a"}, None),
        ("", {"queue": "other"}, None),
        ("due = true", {"queue": "other", "lane": "a"}, None),
        ("due = false", {"queue": "other", "lane": "a"}, None),
    ],
)
def test_what_is_due_is_told_from_what_is_not(
    database: Database,
    assignments: str,
    options: dict[str, Any],
    seen: tuple[bool, bool, bool] | None,
) -> None:
    a_row(database, assignments, **options)
    with database.connection() as connection:
        found = claims.due_queues(connection, ["default"])
    assert [(due.ready, due.laned, due.waiting) for due in found] == ([seen] if seen else [])


@pytest.mark.parametrize(
    "more",
    [
        {"draining": True},
        {"queues": ("other",)},
        {"seen_at": "now() - interval '6 s'"},
    ],
)
def test_nothing_is_claimed_for_workers_that_will_not_run_it(
    database: Database, more: dict[str, Any]
) -> None:
    seen_at = more.pop("seen_at", "now()")
    a_worker(database, **more)
    a_row(database)
    with database.connection() as connection:
        connection.execute(f"UPDATE vpay.workers SET seen_at = {seen_at}".encode())
        taken = claim(connection)
    assert (taken.messages, taken.room, taken.threads) == ([], 0, 0)
