"""Writes that are given some rows leave all others alone, and of theirs each column is what it
should be: whole tables are compared, so that no condition of theirs is there for nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.factories import change
from tests.store.job_rows import (
    CLAIM_OVER,
    CLAIMED,
    FREED,
    RUN_OVER,
    RUNNING,
    TOKEN,
    a_row,
    bystanders,
    everything,
    in_the_future,
)
from tests.store.tables import changes
from vpay_tasks.core.settling import Ending, Verb
from vpay_tasks.errors import DeadReason
from vpay_tasks.store import jobs, leases, settles, workers
from vpay_tasks.store.db import Connection, Database, connect
from vpay_tasks.store.settles import Settle


def test_a_reaper_of_late_rows_frees_those_and_keeps_what_they_were(database: Database) -> None:
    bystanders(database)
    a_row(database, CLAIMED)
    a_row(database, RUNNING)
    claim = a_row(database, f"{CLAIM_OVER}, crashes = 2", lane="b")
    first = a_row(database, f"{RUN_OVER}, poked = '3 s'", lane="c")
    plain = a_row(database, RUN_OVER)
    second = a_row(database, f"{RUN_OVER}, crashes = 1, poked = '3 s'", lane="d")
    fourth = a_row(database, f"{RUN_OVER}, crashes = 3")
    fifth = a_row(database, f"{RUN_OVER}, crashes = 4")
    never_ran = a_row(database, f"{CLAIM_OVER}, crashes = 5")
    protected = a_row(database, f"{RUN_OVER}, crashes = 4", kind="guarded")
    before = everything(database)
    with database.connection() as connection:
        reaped = leases.reap_expired(connection, protected=["guarded"])
    told = changes(before, everything(database))
    assert {item.id for item in reaped} == set(told)
    assert told[claim] == {**FREED, "due": True}
    assert told[never_ran] == FREED
    crashed = {**FREED, "started_at": None}
    assert told[first] == {**crashed, "crashes": 1, "poked": None, "due": True}
    assert told[plain] == {**crashed, "crashes": 1}
    assert in_the_future(told[second].pop("run_at"), 3)
    assert told[second] == {**crashed, "crashes": 2, "poked": None}
    assert in_the_future(told[fourth].pop("run_at"), 40)
    assert told[fourth] == {**crashed, "crashes": 4}
    assert in_the_future(told[protected].pop("run_at"), 80)
    assert told[protected] == {**crashed, "crashes": 5}
    assert {told[fifth].pop(column) is not None for column in ("run_at", "parked_at")} == {True}
    assert told.pop(fifth) == {**crashed, "crashes": 5, "dead_reason": "crashed"}
    assert len(told) == 7


@contextmanager
def a_dead_worker(database: Database, dsn: str) -> Iterator[Connection]:
    """`w_gone` is silent and has no lock, `w_lives` is as silent and has one, `w_pooled` never
    had one; the session of a reaper that has heard long enough."""
    with database.connection() as reaper, connect(dsn, application="w") as pulse:
        for id_, holds_lock in (("w_gone", True), ("w_lives", True), ("w_pooled", False)):
            known = workers.Worker(id_, "host", 1, ["default"], 8)
            workers.pulse(
                reaper, known, draining=False, holds_lock=holds_lock, slowest=0.01, stats={}
            )
        assert workers.try_lock(pulse, "w_lives")
        reaper.execute(
            "UPDATE vpay.workers SET seen_at = now() - interval '1 h', slowest_pulse = '-1 h'"
        )
        yield reaper


def gone(reaper: Connection, **more: float) -> set[int]:
    given = {"silence": -1.0, "settling": -1.0, **more}
    return {item.id for item in leases.reap_gone(reaper, protected=["guarded"], **given)}


def test_a_reaper_of_dead_workers_frees_what_they_ran_and_nothing_else(
    database: Database, dsn: str
) -> None:
    bystanders(database)
    a_row(database, CLAIMED)
    a_row(database, RUNNING.replace("w_gone", "w_pooled"))
    first = a_row(database, f"{RUNNING}, poked = '3 s'", lane="b")
    plain = a_row(database, RUNNING)
    second = a_row(database, f"{RUNNING}, crashes = 1, poked = '3 s'", lane="c")
    fourth = a_row(database, f"{RUNNING}, crashes = 3")
    fifth = a_row(database, f"{RUNNING}, crashes = 4")
    protected = a_row(database, f"{RUNNING}, crashes = 4", kind="guarded")
    before = everything(database)
    with a_dead_worker(database, dsn) as reaper:
        reaped = gone(reaper)
    told = changes(before, everything(database))
    assert reaped == set(told)
    crashed = {**FREED, "started_at": None}
    assert told[first] == {**crashed, "crashes": 1, "poked": None, "due": True}
    assert told[plain] == {**crashed, "crashes": 1}
    assert in_the_future(told[second].pop("run_at"), 3)
    assert told[second] == {**crashed, "crashes": 2, "poked": None}
    assert in_the_future(told[fourth].pop("run_at"), 40)
    assert told[fourth] == {**crashed, "crashes": 4}
    assert in_the_future(told[protected].pop("run_at"), 80)
    assert told[protected] == {**crashed, "crashes": 5}
    assert {told[fifth].pop(column) is not None for column in ("run_at", "parked_at")} == {True}
    assert told.pop(fifth) == {**crashed, "crashes": 5, "dead_reason": "crashed"}
    assert len(told) == 5


@pytest.mark.parametrize(
    "lock",
    [
        "pg_advisory_lock(86, hashtext('w_gone'))",
        "pg_advisory_lock(87, hashtext('w_lives'))",
        "pg_advisory_lock((87::bigint << 32) | (hashtext('w_gone')::bigint & 4294967295))",
    ],
)
def test_a_lock_of_another_class_or_name_is_no_sign_of_life(
    database: Database, dsn: str, lock: str
) -> None:
    ran = a_row(database, RUNNING)
    with connect(dsn, application="other") as other:
        if "w_lives" not in lock:
            other.execute(f"SELECT {lock}".encode())
        with a_dead_worker(database, dsn) as reaper:
            assert gone(reaper) == {ran}


def test_a_lock_of_another_database_is_no_sign_of_life(
    database: Database, dsn: str, postgres_url: str
) -> None:
    ran = a_row(database, RUNNING)
    with connect(postgres_url, application="other") as other:
        assert workers.try_lock(other, "w_gone")
        with a_dead_worker(database, dsn) as reaper:
            assert gone(reaper) == {ran}


def test_a_reaper_counts_from_its_own_session_and_no_older_one(
    database: Database, dsn: str
) -> None:
    ran = a_row(database, RUNNING)
    with a_dead_worker(database, dsn) as reaper:
        ((oldest, own),) = reaper.execute(
            "SELECT max(age), max(age) FILTER (WHERE pid = pg_backend_pid()) FROM ("
            " SELECT pid, extract(epoch FROM now() - backend_start)::float8 AS age"
            " FROM pg_stat_activity) AS sessions"
        ).fetchall()
        assert own < oldest
        between = (own + oldest) / 2
        assert gone(reaper, settling=between) == set()
        assert gone(reaper, silence=between) == set()
        assert gone(reaper) == {ran}


def a_batch(database: Database, assignments: str) -> list[int]:
    """Rows of one message: all with one token."""
    return [a_row(database, assignments, lane="a") for _ in range(3)]


def test_a_start_takes_the_rows_that_it_names_and_by_the_token_it_names(
    database: Database,
) -> None:
    bystanders(database)
    named, _, _ = a_batch(database, f"{CLAIMED}, poked = '3 s', unknown_since = now()")
    other = a_row(database, CLAIMED.replace(str(TOKEN), str(uuid.uuid4())))
    before = everything(database)
    run = uuid.uuid4()
    with database.connection() as connection:
        started = jobs.start(
            connection,
            [(named, TOKEN), (other, TOKEN)],
            run=run,
            worker="w_new",
            run_lease=600,
            known=["a_kind"],
        )
    assert [job and job.id for job in started] == [named, None]
    told = changes(before, everything(database))
    (new,) = told.values()
    assert in_the_future(new.pop("lease_until") - timedelta(seconds=540), 60)
    assert in_the_future(new.pop("started_at"), 0)
    assert told == {named: {"lease": run, "locked_by": "w_new", "starts": 3, "poked": None,
                            "unknown_since": None}}  # fmt: skip


def test_a_kind_stays_unknown_to_whoever_starts_it_without_knowing_it(database: Database) -> None:
    strange = a_row(database, f"{CLAIMED}, unknown_since = now()", kind="strange")
    run: dict[str, Any] = {"run": uuid.uuid4(), "worker": "w", "run_lease": 600}
    with database.connection() as connection:
        jobs.start(connection, [(strange, TOKEN)], known=["a_kind"], **run)
    assert everything(database)[strange]["unknown_since"] is not None


def test_what_is_given_back_are_the_rows_that_are_named(database: Database) -> None:
    bystanders(database)
    claimed, _, _ = a_batch(database, f"{RUNNING}, poked = '3 s', crashes = 1")
    other = a_row(database, RUNNING.replace(str(TOKEN), str(uuid.uuid4())))
    before = everything(database)
    with database.connection() as connection:
        assert jobs.release(connection, {claimed: TOKEN, other: TOKEN}) == [claimed]
    told = changes(before, everything(database))
    assert told == {claimed: {**FREED, "started_at": None, "poked": None, "due": True}}


def test_what_is_renewed_are_the_rows_that_are_named(database: Database) -> None:
    bystanders(database)
    mine, mate, _ = a_batch(database, RUNNING)
    other = a_row(database, RUNNING.replace(str(TOKEN), str(uuid.uuid4())))
    before = everything(database)
    with database.connection() as connection:
        given = [(mine, TOKEN), (other, TOKEN)]
        assert leases.renew(connection, given, run_lease=600) == {(mine, TOKEN)}
        assert leases.still_held(connection, given) == {(mine, TOKEN)}
        assert leases.still_held(connection, [(mate, uuid.uuid4())]) == set()
    told = changes(before, everything(database))
    assert list(told) == [mine]
    assert in_the_future(told[mine].pop("lease_until") - timedelta(seconds=540), 60)
    assert told[mine] == {}


SETTLED = {**FREED, "started_at": None, "poked": None, "crashes": 0, "settled_by": TOKEN}


@pytest.mark.parametrize(
    ("ending", "new", "delay"),
    [
        (Ending(Verb.FINISH), {"gone": True}, None),
        (Ending(Verb.AGAIN, 90.0), {"failures": 0, "unknown_since": None}, 90),
        (Ending(Verb.AGAIN, 0.0), {"failures": 0, "unknown_since": None, "due": True}, 0),
        (
            Ending(Verb.RETRY, 90.0, "new"),
            {"failures": 2, "unknown_since": None, "last_error": "new"},
            90,
        ),
        (Ending(Verb.UNKNOWN, 90.0), {}, 90),
        (
            Ending(Verb.PARK, 0.0, "new", DeadReason.BY_TASK),
            {"last_error": "new", "dead_reason": "by_task"},
            None,
        ),
    ],
)
def test_a_settle_ends_the_rows_that_it_names_and_by_its_verb(
    database: Database, ending: Ending, new: dict[str, Any], delay: float | None
) -> None:
    bystanders(database)
    mine, _, _ = a_batch(database, f"{RUNNING}, crashes = 2, unknown_since = now()")
    other = a_row(database, RUNNING.replace(str(TOKEN), str(uuid.uuid4())))
    before = everything(database)
    with database.connection() as connection:
        given = [Settle(other, TOKEN, ending), Settle(mine, TOKEN, ending)]
        assert settles.settle(connection, given) == [False, True]
    told = changes(before, everything(database))
    assert list(told) == [mine]
    if delay is not None:
        run_at = told[mine].pop("run_at")
        assert in_the_future(run_at, delay)
        assert in_the_future(run_at - timedelta(seconds=delay), 0)
    if ending.verb is Verb.PARK:
        assert in_the_future(told[mine].pop("parked_at"), 0)
    settled = {k: v for k, v in SETTLED.items() if k != "poked"}
    assert told[mine] == (new if "gone" in new else {**settled, **new})


@pytest.mark.parametrize(
    ("ending", "failures"),
    [
        (Ending(Verb.FINISH), 0),
        (Ending(Verb.AGAIN, 90.0), 0),
        (Ending(Verb.RETRY, 90.0, "new"), 2),
        (Ending(Verb.UNKNOWN, 90.0), 1),
    ],
)
def test_a_nudged_row_comes_back_as_soon_as_the_nudge_says_whatever_its_end(
    database: Database, ending: Ending, failures: int
) -> None:
    mine, mate, _ = a_batch(database, f"{RUNNING}, poked = '3 s'")
    change(database, "poked = NULL", mate)
    with database.connection() as connection:
        assert settles.settle(connection, [Settle(mine, TOKEN, ending)]) == [True]
    found = everything(database)[mine]
    assert in_the_future(found["run_at"], 3)
    assert in_the_future(found["run_at"] - timedelta(seconds=3), 0)
    assert (found["poked"], found["failures"]) == (None, failures)
