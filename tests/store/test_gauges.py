"""The gauges' statements on real rows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vpay_tasks.store import gauges
from vpay_tasks.store.db import Connection, Database, connect
from vpay_tasks.store.gauges import StateCount

INSERT = (
    "INSERT INTO vpay.jobs (queue, kind, lane, due, priority, payload, run_at, claims, starts,"
    " lease, locked_by, locked_at, lease_until, started_at, parked_at, dead_reason, last_error)"
    " SELECT %(queue)s, %(kind)s, %(lane)s, %(due)s, %(priority)s, '{}',"
    " now() - make_interval(secs => %(age)s), %(claims)s, %(starts)s,"
    " CASE WHEN %(leased)s THEN gen_random_uuid() END, CASE WHEN %(leased)s THEN 'w' END,"
    " CASE WHEN %(leased)s THEN now() END, CASE WHEN %(leased)s THEN now() END,"
    " CASE WHEN %(started)s THEN now() END,"
    " CASE WHEN %(reason)s::text IS NOT NULL THEN now() - interval '1 min' END,"
    " %(reason)s, %(error)s"
    " FROM generate_series(1, %(times)s)"
)
DEFAULTS: dict[str, Any] = {
    "queue": "payments",
    "kind": "k",
    "lane": None,
    "due": False,
    "priority": 2,
    "age": 0.0,
    "claims": 0,
    "starts": 0,
    "leased": False,
    "started": False,
    "reason": None,
    "error": None,
    "times": 1,
}


def put(connection: Connection, **values: Any) -> None:
    connection.execute(INSERT, {**DEFAULTS, **values})


def by_state(connection: Connection, *, cap: int = gauges.CAP) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for count in gauges.jobs_by_state(connection, gauges.queues(connection), cap=cap):
        found[count.kind, count.state] = found.get((count.kind, count.state), 0) + count.jobs
    return found


def test_an_empty_system_has_no_gauges(database: Database) -> None:
    with database.connection() as connection:
        seen = gauges.look(connection)
    assert (seen.counts, seen.ages, seen.workers, seen.parked) == ((), {}, (), ())


def test_each_state_is_counted_by_queue_and_kind(database: Database) -> None:
    with database.connection() as connection:
        for priority in range(4):
            put(connection, age=60, priority=priority, times=2)
            put(connection, age=-60, priority=priority)
        put(connection, kind="laned", lane="a", due=True, age=5, times=3)
        put(connection, kind="laned", lane="b", due=True, age=-5)
        put(connection, kind="laned", lane="a", age=5)
        put(connection, kind="laned", lane="a", age=-5, times=2)
        put(connection, leased=True, times=5, claims=1)
        put(connection, leased=True, started=True, claims=1, starts=1, times=6)
        put(connection, reason="poisoned", times=7)
        put(connection, reason="crashed", times=1)
        counts = by_state(connection)
    assert counts == {
        ("k", "ready"): 8,
        ("k", "scheduled"): 4,
        ("k", "claimed"): 5,
        ("k", "running"): 6,
        ("k", "parked"): 8,
        ("laned", "ready"): 4,
        ("laned", "scheduled"): 3,
    }


@pytest.mark.parametrize(
    "row",
    [
        {"age": 1},
        {"age": -60},
        {"lane": "a", "due": True},
        {"lane": "a"},
        {"leased": True},
        {"reason": "rejected"},
    ],
)
def test_a_queue_is_found_by_whatever_state_its_jobs_are_in(
    database: Database, row: dict[str, Any]
) -> None:
    with database.connection() as connection:
        for name in ("b", "a", "c"):
            put(connection, queue=name, **row)
        put(connection, queue="d")
        assert gauges.queues(connection) == ["a", "b", "c", "d"]


def test_a_count_stops_at_the_cap_and_says_so(database: Database) -> None:
    with database.connection() as connection:
        put(connection, age=60, times=11)
        put(connection, kind="few", age=-60, times=3)
        names = gauges.queues(connection)
        counts = {c.kind: c for c in gauges.jobs_by_state(connection, names, cap=10)}
    assert counts["k"] == StateCount("payments", "k", "ready", None, 10, 0, capped=True)
    assert counts["few"].jobs == 3
    assert counts["few"].capped is False


def test_parked_jobs_are_counted_by_reason(database: Database) -> None:
    with database.connection() as connection:
        put(connection, reason="poisoned", times=2)
        put(connection, reason="by_task")
        counts = gauges.jobs_by_state(connection, ["payments"])
    assert {c.reason: c.jobs for c in counts} == {"poisoned": 2, "by_task": 1}


def test_broker_losses_leave_out_the_claim_that_is_under_way(database: Database) -> None:
    with database.connection() as connection:
        put(connection, kind="lost", claims=5, starts=2)
        put(connection, kind="claimed", claims=3, starts=0, leased=True)
        put(connection, kind="running", claims=3, starts=3, leased=True, started=True)
        counts = gauges.jobs_by_state(connection, ["payments"])
    assert {c.kind: c.broker_losses for c in counts} == {"lost": 3, "claimed": 2, "running": 0}


@pytest.mark.parametrize(
    "oldest",
    [
        {"priority": 3},
        {"priority": 0},
        {"lane": "z", "due": True},
        {"lane": "z", "due": False},
    ],
)
def test_the_age_of_a_queue_is_that_of_its_oldest_ready_row(
    database: Database, oldest: dict[str, Any]
) -> None:
    with database.connection() as connection:
        put(connection, age=100, **oldest)
        put(connection, age=10, times=5)
        put(connection, age=20, lane="a", due=True)
        put(connection, age=5_000, leased=True)
        put(connection, age=5_000, reason="poisoned")
        put(connection, queue="other", age=-30)
        ages = gauges.queue_ages(connection, gauges.queues(connection))
    assert list(ages) == ["payments"]
    assert math.isclose(ages["payments"], 100, abs_tol=10)


def test_the_latest_dead_letters_come_first_across_queues(database: Database) -> None:
    with database.connection() as connection:
        put(connection, reason="poisoned", error="the first")
        put(connection, queue="webhooks", reason="crashed", error="the second")
        connection.execute(
            "UPDATE vpay.jobs SET parked_at = parked_at - interval '1 h' WHERE queue = 'payments'"
        )
        names = gauges.queues(connection)
        found = gauges.parked_jobs(connection, names, limit=5)
        only = gauges.parked_jobs(connection, names, limit=1)
    assert [(job.error, job.reason) for job in found] == [
        ("the second", "crashed"),
        ("the first", "poisoned"),
    ]
    assert [job.id for job in only] == [found[0].id]


def test_a_worker_is_alive_by_its_lock_however_old_its_pulse(database: Database, dsn: str) -> None:
    with database.connection() as connection, connect(dsn, application="w") as session:
        session.execute("SELECT pg_advisory_lock(87, hashtext('holds'))")
        for name, holds in (("holds", True), ("gone", True), ("fresh", False), ("old", False)):
            connection.execute(
                "INSERT INTO vpay.workers (id, host, pid, queues, threads, holds_lock, seen_at)"
                " VALUES (%(id)s, 'h', 1, '{payments}', 4, %(holds)s, now() - %(age)s::interval)",
                {"id": name, "holds": holds, "age": "1 s" if name == "fresh" else "1 h"},
            )
        alive = {w.id: w.alive for w in gauges.worker_stats(connection)}
    assert alive == {"holds": True, "gone": False, "fresh": True, "old": False}


def test_counters_are_summed_over_workers_and_nonsense_is_left_out(database: Database) -> None:
    with database.connection() as connection:
        for i, stats in enumerate(
            (
                '{"counters": {"posts": 2, "bad": "x", "down": -1, "half": 1.5}}',
                '{"counters": {"posts": 3}}',
                '{"counters": []}',
                "[]",
                "{}",
            )
        ):
            connection.execute(
                "INSERT INTO vpay.workers (id, host, pid, queues, threads, stats)"
                " VALUES (%(id)s, 'h', 1, '{}', 4, %(stats)s)",
                {"id": str(i), "stats": stats},
            )
        seen = gauges.look(connection)
    assert seen.counters() == {"posts": 5}
