"""Claiming: the window, the lanes, the order, under several dispatchers at once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.e2e import postgres_proxy
from tests.factories import (
    a_job,
    a_worker,
    as_a_dispatcher,
    change,
    claimed,
    claimed_ids,
    started,
)
from vpay_tasks.store import claims, jobs, leases, sql
from vpay_tasks.store.db import Connection, Database, connect


def lane(database: Database, lane: str, **columns: object) -> None:
    names = ", ".join(columns)
    values = ", ".join(f"%({name})s" for name in columns)
    with database.connection() as connection:
        connection.execute(
            f"INSERT INTO vpay.lanes (queue, lane, {names})"
            f" VALUES ('default', %(lane)s, {values})".encode(),
            {"lane": lane, **columns},
        )


def test_four_dispatchers_at_once_never_exceed_the_window_or_a_lanes_cap(
    database: Database, dsn: str
) -> None:
    a_worker(database, threads=8)
    lane(database, "narrow", cap=3)
    for n in range(120):
        a_job(database, lane="narrow" if n % 2 else None)
    rounds = 25
    together = threading.Barrier(4)
    over: list[tuple[int, int]] = []

    def dispatch(first: bool) -> None:
        with connect(dsn, application="d") as connection:
            for n in range(rounds):
                (due,) = claims.due_queues(connection, ["default"])
                together.wait()
                claims.claim(connection, due, **as_a_dispatcher(lanes_first=n % 2 == 0))
                together.wait()
                if first:
                    over.append(_leased(connection))
                    connection.execute(FREE_ALL)
                together.wait()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(dispatch, n == 0) for n in range(4)]:
            done.result()
    # 1.25 messages a thread, three of them of the lane where lanes went first.
    assert over == [(10, 3), (10, 0)] * (rounds // 2) + [(10, 3)] * (rounds % 2)


def test_a_claim_that_is_sent_holds_nothing_whatever_becomes_of_its_dispatcher(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    a_worker(database)
    a_job(database)
    proxy, through = postgres_proxy.before(dsn)
    with closing(proxy), connect(through, application="d") as connection:
        (due,) = claims.due_queues(connection, ["default"])
        line = proxy.line(connection.info.backend_pid)
        assert line is not None
        with ThreadPoolExecutor(1) as pool:
            with database.transaction() as tx:
                turn = claims.lock_queue("default")
                sql.run(tx, turn.statement, turn.params)
                claiming = pool.submit(claims.claim, connection, due, **as_a_dispatcher())
                waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND pid = %s"
                eventually(lambda: tx.execute(waits, (line.backend,)).fetchone())
                # As if it were stopped by now: it can't say COMMIT when it is asked to.
                line.fall_mute()
            try:
                assert claiming.result(20).messages
            finally:
                line.cut()
    with database.connection() as other:
        assert _leased(other)[0] == 1


FREE_ALL = b"""
    UPDATE vpay.jobs
    SET lease = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL
    WHERE lease IS NOT NULL
"""


def _leased(connection: Connection) -> tuple[int, int]:
    """Rows leased, and those of them in the narrow lane."""
    ((leased, narrow),) = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE lane = 'narrow')"
        " FROM vpay.jobs WHERE lease IS NOT NULL"
    ).fetchall()
    return leased, narrow


def test_a_message_that_was_started_makes_room_for_the_next(database: Database) -> None:
    a_worker(database, threads=4)
    for _ in range(20):
        a_job(database)
    with database.connection() as connection:
        first = claimed(connection)
        assert len(first.messages) == 5
        assert claimed(connection).messages == []
        jobs.start(
            connection,
            [(id_, first.messages[0].lease) for id_ in first.messages[0].ids],
            run=first.messages[1].lease,
            worker="w",
            run_lease=30,
            known=[],
        )
        assert len(claimed(connection).messages) == 1


@pytest.mark.parametrize(
    ("threads", "queues", "most"),
    [(8, ("default",), 10), (8, ("default", "other"), 7), (1, ("default", "other"), 1)],
)
def test_a_process_that_serves_several_queues_keeps_a_thread_from_each(
    database: Database, threads: int, queues: tuple[str, ...], most: int
) -> None:
    a_worker(database, threads=threads, queues=queues)
    for _ in range(20):
        a_job(database)
    with database.connection() as connection:
        assert len(claimed(connection).messages) == most


def test_without_a_live_worker_nothing_is_claimed(database: Database) -> None:
    a_worker(database, draining=True)
    a_worker(database, queues=("other",))
    gone = a_worker(database)
    with database.connection() as connection:
        connection.execute(
            "UPDATE vpay.workers SET seen_at = now() - interval '6 s' WHERE id = %s", (gone,)
        )
        a_job(database)
        assert claimed(connection).messages == []


def test_priorities_are_strict_and_age_decides_within_one(database: Database) -> None:
    a_worker(database)
    late = a_job(database, priority=2)
    early = a_job(database, priority=2)
    change(database, "run_at = now() - interval '1 h'", early)
    urgent = a_job(database, priority=0)
    with database.connection() as connection:
        assert claimed_ids(connection) == [urgent, early, late]


def test_rows_that_are_not_due_parked_or_leased_are_left(database: Database) -> None:
    a_worker(database)
    a_job(database, delay=60)
    parked = a_job(database)
    change(database, "parked_at = now(), dead_reason = 'by_operator'", parked)
    free = a_job(database)
    with database.connection() as connection:
        assert claimed_ids(connection) == [free]
        assert claimed_ids(connection) == []


def test_kinds_with_a_batch_travel_together_and_a_crashed_row_alone(database: Database) -> None:
    a_worker(database)
    ids = [a_job(database, "together") for _ in range(5)]
    crashed = a_job(database, "together")
    change(database, "crashes = 1", crashed)
    others = [a_job(database, "alone") for _ in range(2)]
    with database.connection() as connection:
        claim = claimed(connection, batches={"together": 3})
    assert [message.ids for message in claim.messages] == [
        ids[:3], ids[3:], [crashed], *([id_] for id_ in others),
    ]  # fmt: skip
    assert len({message.lease for message in claim.messages}) == 5


def test_batches_count_as_messages_in_the_window(database: Database) -> None:
    a_worker(database, threads=4)
    for _ in range(100):
        a_job(database, "together")
    with database.connection() as connection:
        claim = claimed(connection, batches={"together": 10})
    assert [len(message.ids) for message in claim.messages] == [10] * 5


@pytest.mark.parametrize(
    ("columns", "most"),
    [
        ({"cap": 2}, 2),
        ({"paused": True, "cap": 2}, 0),
        ({"circuit_trips": 1, "cap": 3}, 1),
        ({"cap": 64}, 4),  # never more than half the threads
    ],
)
def test_a_lanes_exception_is_its_cap(
    database: Database, columns: dict[str, object], most: int
) -> None:
    a_worker(database, threads=8)
    lane(database, "a", **columns)
    for _ in range(9):
        a_job(database, lane="a")
    with database.connection() as connection:
        assert len(claimed_ids(connection)) == most


def test_an_open_circuit_lets_nothing_through_until_its_time(database: Database) -> None:
    a_worker(database)
    lane(database, "a", circuit_trips=1)
    a_job(database, lane="a")
    with database.connection() as connection:
        connection.execute("UPDATE vpay.lanes SET circuit_until = now() + interval '1 min'")
        assert claimed_ids(connection) == []
        connection.execute("UPDATE vpay.lanes SET circuit_until = now() - interval '1 s'")
        assert len(claimed_ids(connection)) == 1


def test_a_lane_without_an_exception_is_a_flight_of_one(database: Database) -> None:
    a_worker(database)
    first, second = a_job(database, lane="a"), a_job(database, lane="a")
    with database.connection() as connection:
        claim = claimed(connection)
        assert [message.ids for message in claim.messages] == [[first]]
        assert claimed_ids(connection) == []
        jobs.release(connection, {first: claim.messages[0].lease})
        assert claimed_ids(connection) == [first]
        change(database, "lease_until = now() - interval '1 s'", first)
        leases.reap_expired(connection, protected=[])
        change(database, "run_at = now() + interval '1 h', due = false", first)
        assert claimed_ids(connection) == [second]


def test_lanes_that_wait_on_a_ladder_are_walked_once_they_are_due(database: Database) -> None:
    a_worker(database)
    waiting = a_job(database, lane="a", delay=60)
    with database.connection() as connection:
        assert claimed_ids(connection) == []
        change(database, "run_at = now()", waiting)
        assert claimed_ids(connection) == [waiting]


@pytest.mark.parametrize(
    ("plain", "batches"),
    [
        pytest.param(0, {}, id="lanes alone"),
        pytest.param(900, {}, id="beside a backlog without lanes"),
        pytest.param(0, {"a_kind": 1, "other": 50}, id="in a queue with a kind of batches"),
    ],
)
def test_lanes_with_backlogs_take_turns_whatever_the_room(
    database: Database, plain: int, batches: dict[str, int]
) -> None:
    """A saturated dispatcher also looks without room: that must not begin the walk anew."""
    a_worker(database, threads=4)
    lanes = [f"lane {n}" for n in range(7)]
    _backlog(database, lanes, rows=200, plain=plain)  # more than is ever taken
    served: Counter[str | None] = Counter()
    cursor = ""
    with database.connection() as connection:
        for n in range(90):
            options: dict[str, Any] = {"lanes_first": n % 2 == 0, "batches": batches}
            cursor = claimed(connection, cursor=cursor, **options).next_lane
            cursor = claimed(connection, cursor=cursor, **options).next_lane  # without room
            served.update(_settle_claimed(connection))
    turns = [served[name] for name in lanes]
    assert min(turns) > 0.6 * max(turns) > 0, turns


def _backlog(database: Database, lanes: list[str], *, rows: int, plain: int) -> None:
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, lane, due, payload)"
            " SELECT 'default', 'a_kind', lane, lane IS NOT NULL, '{}'"
            " FROM (SELECT lane FROM unnest(%s::text[]) AS lane, generate_series(1, %s)"
            " UNION ALL SELECT NULL FROM generate_series(1, %s)) AS wanted (lane)",
            (lanes, rows, plain),
        )


def _settle_claimed(connection: Connection) -> list[str | None]:
    """The lanes of what is leased, which is then gone."""
    rows = connection.execute(
        "DELETE FROM vpay.jobs WHERE lease IS NOT NULL RETURNING lane"
    ).fetchall()
    return [row[0] for row in rows]


def test_what_runs_on_a_draining_worker_takes_no_room_from_a_new_one(database: Database) -> None:
    old = a_worker(database, threads=8, queues=("default", "inbox"))
    for _ in range(40):
        a_job(database)
    with database.connection() as connection:
        assert len(started(connection, worker=old)) == 7
        connection.execute("UPDATE vpay.workers SET draining = true")
        a_worker(database, threads=8, queues=("default", "inbox"))
        assert len(claimed(connection).messages) == 7


def test_claims_alternate_which_half_goes_first(database: Database) -> None:
    a_worker(database, threads=1)
    for _ in range(4):
        a_job(database)
    for n in range(4):
        a_job(database, lane=f"{n}")
    with database.connection() as connection:
        plain_first = claimed_ids(connection, window=1)
        connection.execute("UPDATE vpay.jobs SET run_at = 'infinity' WHERE lease IS NOT NULL")
        connection.execute(
            "UPDATE vpay.jobs SET lease = NULL, locked_by = NULL, locked_at = NULL,"
            " lease_until = NULL WHERE lease IS NOT NULL"
        )
        lanes_first = claimed_ids(connection, window=1, lanes_first=True)
        rows = connection.execute(
            "SELECT id FROM vpay.jobs WHERE lane IS NOT NULL AND id = ANY(%s)",
            (plain_first + lanes_first,),
        ).fetchall()
    assert [row[0] for row in rows] == lanes_first


def test_only_queues_with_something_to_claim_are_named(database: Database) -> None:
    a_job(database, queue="b")
    a_job(database, queue="c", lane="x", delay=60)
    with database.connection() as connection:
        assert [due.queue for due in claims.due_queues(connection, ["a", "b", "c"])] == ["b"]
