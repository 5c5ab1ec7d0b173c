"""The doctor's decisions, one fact at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vpay_tasks.doctor import report
from vpay_tasks.doctor.facts import Facts, Work
from vpay_tasks.doctor.finding import RANK, Finding
from vpay_tasks.doctor.findings import find
from vpay_tasks.errors import DeadReason, Severity
from vpay_tasks.store import vitals
from vpay_tasks.store.checkup import (
    Checkup,
    ClosedLane,
    CommitsWaiting,
    IdleTransaction,
    Server,
    Setting,
)
from vpay_tasks.store.gauges import Gauges, StateCount, WorkerStats
from vpay_tasks.store.inbox import Waiting
from vpay_tasks.store.vitals import Holder, Vitals

SERVER = Server(170_002, False, "app", "shop")
WORKER = WorkerStats(
    id="w",
    host="h",
    pid=1,
    queues=("payments",),
    threads=4,
    draining=False,
    holds_lock=True,
    pulse_age=0.1,
    age=50.0,
    alive=True,
    counters={},
)
READY = StateCount("payments", "poll_charge", "ready", None, 3, 0, False)
PARKED = replace(READY, state="parked", reason="poisoned")
HELD = Holder("session", 7, "report", "idle in transaction", 301.0, 9)


def work(
    *,
    counts: tuple[StateCount, ...] = (READY,),
    ages: dict[str, float] | None = None,
    workers: tuple[WorkerStats, ...] = (WORKER,),
    checkup: Checkup | None = None,
    **more: Any,
) -> Work:
    return Work(
        Gauges(counts, ages or {"payments": 1.0}, workers, (), None),
        Vitals(**{"dispatchers": 1, "live_dispatchers": 1, "vacuum_age": 5.0, **more}),
        checkup or Checkup(),
    )


DEAF = Gauges((READY,), {}, (WORKER,), (), None, ("client_min_messages",))
UNSET = Gauges((READY,), {}, (WORKER,), (), None, ("lock_timeout", "statement_timeout"))
HEALTHY = Facts(queues=("payments",), kinds=("poll_charge",), server=SERVER, work=work())


def held(**changes: Any) -> Facts:
    return replace(HEALTHY, work=work(horizon=(replace(HELD, **changes),)))


def checked(**changes: Any) -> Facts:
    return replace(HEALTHY, work=work(checkup=Checkup(**changes)))


def test_a_healthy_system_has_no_finding() -> None:
    assert find(HEALTHY) == []


@pytest.mark.parametrize(
    ("facts", "code", "severity", "remedy"),
    [
        (
            Facts(queues=(), no_postgres="it is away"),
            "postgres_unreachable",
            "page",
            "pg_isready",
        ),
        (replace(HEALTHY, no_broker="away"), "broker_unreachable", "page", "valkey-cli ping"),
        (
            replace(HEALTHY, no_broker="away", rabbit=True),
            "broker_unreachable",
            "page",
            "rabbitmq-diagnostics check_running",
        ),
        (
            replace(HEALTHY, evicts="allkeys-lru"),
            "broker_evicts",
            "warn",
            "valkey-cli CONFIG SET maxmemory-policy noeviction",
        ),
        (
            replace(HEALTHY, missing=("0001_a.sql", "0002_b.sql"), work=None),
            "migrations_missing",
            "page",
            "vpay-tasks migrate",
        ),
        (
            replace(HEALTHY, no_tasks="cannot import shop", kinds=()),
            "tasks_unloadable",
            "error",
            "settings: [worker] modules = [...]",
        ),
        (
            replace(HEALTHY, server=replace(SERVER, standby=True)),
            "postgres_is_standby",
            "page",
            "settings: add target_session_attrs=read-write to database.url",
        ),
        (
            replace(HEALTHY, server=replace(SERVER, version=130_020)),
            "postgres_unsupported",
            "error",
            "pg_upgrade, to 14 at least",
        ),
        (
            replace(HEALTHY, server=replace(SERVER, version=190_000)),
            "postgres_unsupported",
            "warn",
            "make test",
        ),
        (
            replace(HEALTHY, risky=[Setting("fsync", "off", "configuration file")]),
            "fsync_off",
            "page",
            "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();",
        ),
        (
            replace(HEALTHY, pooled=True, work=replace(work(), gauges=DEAF)),
            "role_lacks_settings",
            "warn",
            'ALTER ROLE "app" SET client_min_messages = notice;',
        ),
        (
            replace(HEALTHY, pooled=True, work=replace(work(), gauges=UNSET)),
            "role_lacks_settings",
            "warn",
            "ALTER ROLE \"app\" SET lock_timeout = '15s';",
        ),
        (
            replace(HEALTHY, work=work(dispatchers=0, live_dispatchers=0)),
            "dispatcher_missing",
            "page",
            "vpay-dispatch",
        ),
        (
            replace(HEALTHY, work=work(live_dispatchers=0)),
            "dispatcher_stuck",
            "page",
            "systemctl restart vpay-dispatch",
        ),
        (
            checked(missing_singletons=("fanout:events",)),
            "singletons_missing",
            "error",
            "systemctl restart vpay-dispatch",
        ),
        (
            replace(HEALTHY, work=work(overdue={"payments": 2})),
            "leases_overdue",
            "error",
            "systemctl restart vpay-dispatch",
        ),
        (
            replace(HEALTHY, work=work(workers=(WORKER, replace(WORKER, id="x", alive=False)))),
            "workers_lost",
            "warn",
            "journalctl -p warning -u 'vpay-worker@*'",
        ),
        (
            replace(HEALTHY, work=work(workers=(replace(WORKER, draining=True),))),
            "queue_unserved",
            "page",
            "dramatiq vpay_tasks.actors --queues payments",
        ),
        (
            replace(HEALTHY, queues=("webhooks",)),
            "queue_not_dispatched",
            "error",
            'settings: add "payments" to [dispatch] queues',
        ),
        (
            replace(HEALTHY, work=work(ages={"payments": 121.0})),
            "queue_behind",
            "warn",
            "dramatiq vpay_tasks.actors --queues payments",
        ),
        (
            replace(HEALTHY, kinds=("other",)),
            "kinds_unknown",
            "error",
            "settings: add the module that declares it to [worker] modules",
        ),
        (
            replace(HEALTHY, work=work(contradicted=1)),
            "charges_contradicted",
            "page",
            "vpay-tasks charges --unresolved",
        ),
        (
            replace(HEALTHY, work=work(unresolved=2)),
            "charges_unresolved",
            "error",
            "vpay-tasks charges --unresolved",
        ),
        (
            replace(HEALTHY, work=work(inbox=Waiting(age=None, open=0, dead=3))),
            "inbox_dead",
            "error",
            "vpay-tasks inbox list --state dead",
        ),
        (
            checked(closed_lanes=(ClosedLane("webhooks", "o'b/main", True),)),
            "lanes_paused",
            "info",
            "UPDATE vpay.lanes SET paused = false WHERE queue = 'webhooks' AND lane = 'o''b/main';",
        ),
        (held(), "horizon_held", "warn", "SELECT pg_terminate_backend(7);"),
        (held(seconds=3_601.0), "horizon_held", "error", "SELECT pg_terminate_backend(7);"),
        (
            held(seconds=None, transactions=1_000_001),
            "horizon_held",
            "warn",
            "SELECT pg_terminate_backend(7);",
        ),
        (
            held(holder="prepared", pid=None, name="it's"),
            "horizon_held",
            "warn",
            "ROLLBACK PREPARED 'it''s';",
        ),
        (
            held(holder="slot", pid=None, name="old", seconds=None, transactions=2_000_000),
            "horizon_held",
            "warn",
            "SELECT pg_drop_replication_slot('old');",
        ),
        (
            held(seconds=None, state=None),
            "sessions_hidden",
            "warn",
            'GRANT pg_read_all_stats TO "app";',
        ),
        (
            checked(commits_waiting=CommitsWaiting(3, 5.1)),
            "standby_awaited",
            "page",
            "ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf();",
        ),
        (
            checked(idle=(IdleTransaction(8, "psql", 61.0),)),
            "transaction_idle",
            "warn",
            "SELECT pg_terminate_backend(8);",
        ),
        (
            replace(HEALTHY, work=work(dead_rows=10_001, vacuum_age=601.0)),
            "vacuum_behind",
            "warn",
            "VACUUM vpay.jobs;",
        ),
        (
            replace(HEALTHY, work=work(dead_rows=10_001, vacuum_age=None)),
            "vacuum_behind",
            "warn",
            "VACUUM vpay.jobs;",
        ),
    ],
)
def test_each_fact_is_one_finding_with_one_remedy(
    facts: Facts, code: str, severity: str, remedy: str
) -> None:
    (finding,) = find(facts)
    assert (finding.code, finding.severity.value, finding.remedy) == (code, severity, remedy)


@pytest.mark.parametrize(
    ("source", "whose"),
    [
        ("user", 'ROLE "app"'),
        ("database", 'DATABASE "shop"'),
        ("database user", 'ROLE "app" IN DATABASE "shop"'),
    ],
)
@pytest.mark.parametrize("value", ["off", "local"])
def test_a_setting_is_taken_back_where_it_was_made(value: str, source: str, whose: str) -> None:
    (finding,) = find(replace(HEALTHY, risky=[Setting("synchronous_commit", value, source)]))
    assert (finding.code, finding.severity) == (f"synchronous_commit_{value}", Severity.ERROR)
    assert finding.remedy == f"ALTER {whose} RESET synchronous_commit;"


@pytest.mark.parametrize(
    "facts",
    [
        replace(HEALTHY, work=replace(work(), gauges=UNSET)),
        held(seconds=299.0),
        held(seconds=None, transactions=999_999),
        held(holder="slot", name="fresh", seconds=None, transactions=5),
        held(name="", state=None, seconds=None),
        replace(HEALTHY, work=work(dead_rows=9_999, vacuum_age=None)),
        replace(HEALTHY, work=work(dead_rows=99_999, vacuum_age=599.0)),
        replace(HEALTHY, work=work(ages={"payments": 119.0})),
        replace(HEALTHY, pooled=True, work=work(dispatchers=0, live_dispatchers=0)),
        replace(
            HEALTHY,
            work=work(
                workers=(
                    WORKER,
                    replace(WORKER, id="x", alive=False, draining=True, holds_lock=False),
                )
            ),
        ),
    ],
)
def test_what_is_usual_is_no_finding(facts: Facts) -> None:
    assert find(facts) == []


def test_behind_a_pooler_what_waits_tells_that_nobody_dispatches() -> None:
    waiting = work(dispatchers=0, live_dispatchers=0, ages={"payments": 121.0})
    assert [f.code for f in find(replace(HEALTHY, pooled=True, work=waiting))] == [
        "dispatcher_missing"
    ]


def test_a_missing_dispatcher_is_told_once_and_not_by_what_follows_from_it() -> None:
    missing = work(
        dispatchers=0,
        live_dispatchers=0,
        ages={"payments": 900.0},
        checkup=Checkup(missing_singletons=("fanout:events",)),
    )
    assert [f.code for f in find(replace(HEALTHY, work=missing))] == ["dispatcher_missing"]


def test_a_transaction_that_holds_the_horizon_is_not_told_twice() -> None:
    both = work(horizon=(HELD,), checkup=Checkup(idle=(IdleTransaction(7, "report", 301.0),)))
    assert [f.code for f in find(replace(HEALTHY, work=both))] == ["horizon_held"]


def test_a_commit_that_waits_for_its_standby_is_never_to_be_ended() -> None:
    awaits = replace(HELD, state=vitals.AWAITS_STANDBY)
    waits = work(horizon=(awaits,), checkup=Checkup(commits_waiting=CommitsWaiting(1, 301.0)))
    (finding,) = find(replace(HEALTHY, work=waits))
    assert finding.code == "standby_awaited"
    assert "terminate" not in finding.remedy
    brief = work(checkup=Checkup(commits_waiting=CommitsWaiting(1, 5.0)))
    assert find(replace(HEALTHY, work=brief)) == []


@pytest.mark.parametrize("reason", list(DeadReason))
def test_parked_jobs_are_told_by_reason(reason: DeadReason) -> None:
    parked = work(counts=(READY, replace(PARKED, reason=reason.value)))
    (finding,) = find(replace(HEALTHY, work=parked))
    assert finding.code == f"parked_{reason.value}"
    assert finding.what.startswith(f"3 jobs are parked as {reason.value} (poll_charge). ")


def test_deliveries_given_up_and_open_circuits_are_counted() -> None:
    facts = checked(
        given_up={"exhausted": 2, "gone": 1},
        closed_lanes=(ClosedLane("webhooks", "a/b", False), ClosedLane("webhooks", "a/c", False)),
    )
    assert [(f.code, f.what.partition(": ")[2][:20]) for f in find(facts)] == [
        ("deliveries_given_up", "2 exhausted, 1 gone."),
        ("circuits_open", "its receiver fails; "),
    ]


def test_a_count_that_stopped_says_so() -> None:
    (finding,) = find(replace(HEALTHY, work=work(unresolved=1_000)))
    assert finding.what.startswith("At least 1000 charges are unresolved")


def test_the_worst_comes_first() -> None:
    facts = replace(
        HEALTHY,
        evicts="allkeys-lru",
        risky=[Setting(name, "off", "default") for name in ("fsync", "autovacuum")],
        work=work(checkup=Checkup(closed_lanes=(ClosedLane("webhooks", "a/b", True),))),
    )
    assert [f.severity for f in find(facts)] == list(RANK[:1] + RANK[1:2] + RANK[2:3] + RANK[3:])


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), (["queue_behind"], 1), (["queue_behind", "broker_unreachable"], 69)],
)
def test_the_exit_code_tells_whether_anything_is_wrong(codes: list[str], code: int) -> None:
    found = [Finding(name, Severity.WARN, "x", "y") for name in codes]
    assert report.exit_code(found) == code
