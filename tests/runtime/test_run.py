"""How long a run may trust that its lease is its own."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.factories import a_job, started
from tests.runtime.bench import Bench
from vpay_tasks.runtime.pulse import Pulse
from vpay_tasks.runtime.run import Run, Running, lease_clock
from vpay_tasks.store import workers
from vpay_tasks.store.db import Database


def a_run(database: Database, *, held_for: float) -> Run:
    a_job(database)
    with database.connection() as connection:
        (row,) = started(connection)
    return Run(row, lambda _: pytest.fail("not finished here"), held_until=lease_clock() + held_for)


def test_a_run_trusts_its_lease_until_it_may_have_ended_or_is_told_otherwise(
    database: Database, a_worker_of_eight: str
) -> None:
    run = a_run(database, held_for=30)
    found = [run.held]
    run.held_until = lease_clock()
    found.append(run.held)
    run.held_until += 30
    run.lose()
    found.append(run.held)
    assert found == [True, False, False]


def beat(dsn: str, run: Run) -> None:
    """One pulse of a process that runs `run`, whose lease is due to be renewed."""
    running = Running()
    running.add([run])
    run.renewed_at -= 25
    worker = workers.Worker("w_test", "host", 1, ["default"], 8)
    pulse = Pulse(dsn, worker, running, run_lease=30, session_lock=False)
    pulse.start()
    pulse.stop()


def test_a_renewal_that_was_written_prolongs_the_trust(
    database: Database, dsn: str, a_worker_of_eight: str
) -> None:
    run = a_run(database, held_for=5)
    beat(dsn, run)
    assert 25 < run.held_until - lease_clock() <= 30


def test_a_renewal_that_passed_over_a_locked_row_prolongs_nothing(
    database: Database, dsn: str, a_worker_of_eight: str
) -> None:
    run = a_run(database, held_for=5)
    with database.transaction() as tx:
        tx.execute(b"SELECT 1 FROM vpay.jobs FOR UPDATE")
        beat(dsn, run)
    assert run.held_until - lease_clock() <= 5


def test_the_trust_in_a_lease_ends_before_the_lease_does(
    bench: Bench, database: Database, dsn: str
) -> None:
    """It counts from before a statement was sent, the lease from when it arrived: whoever was
    stopped while the answer came must not believe that it has longer."""
    ahead = time.time() - lease_clock()
    trusted: list[tuple[float, float]] = []

    def looks(job: Run, ctx: Any) -> None:
        trusted.append((job.held_until + ahead, _lease_until(database)))
        beat(dsn, job)
        trusted.append((job.held_until + ahead, _lease_until(database)))

    bench.task(looks)
    a_job(database)
    bench.run()
    (started, lease), (renewed, longer) = trusted
    assert started < lease < renewed < longer


def _lease_until(database: Database) -> float:
    with database.connection() as connection:
        ((until,),) = connection.execute(
            "SELECT extract(epoch FROM lease_until)::float8 FROM vpay.jobs"
        ).fetchall()
    return float(until)
