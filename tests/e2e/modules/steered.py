"""Tasks that a test steers through two tables of its database: `gates` and `runs`."""

from __future__ import annotations

import os
import threading
from typing import Any

import psycopg

from vpay_tasks import Again, Done, task
from vpay_tasks.errors import VpayError


def note(ctx: Any, job: Any, what: str) -> None:
    with ctx.db.connection() as connection:
        connection.execute(
            "INSERT INTO public.runs (job_id, what, pid, attempt) VALUES (%s, %s, %s, %s)",
            (job.id, what, os.getpid(), job.attempt),
        )


def is_open(ctx: Any, gate: str) -> bool:
    """Also through a restart of Postgres: then it isn't open yet."""
    try:
        with ctx.db.connection() as connection:
            query = "SELECT 1 FROM public.gates WHERE name = %s"
            return connection.execute(query, (gate,)).fetchone() is not None
    except (VpayError, psycopg.OperationalError):
        return False


@task(budget=3_600)
def held(job: Any, ctx: Any, *, gate: str) -> Done:
    """Runs until its gate is open; looks at nothing else."""
    note(ctx, job, "began")
    pause = threading.Event()
    while not is_open(ctx, gate):
        pause.wait(0.02)
    note(ctx, job, "ended")
    return Done()


@task(budget=3_600, lane="one")
def held_in_lane(job: Any, ctx: Any, *, gate: str) -> Done:
    return held.handler(job, ctx, gate=gate)  # type: ignore[return-value]


@task(queue="inbox")
def elsewhere(job: Any, ctx: Any) -> Done:
    """In another queue than the rest."""
    note(ctx, job, "ended")
    return Done()


@task(budget=1)
def overruns(job: Any, ctx: Any, *, gate: str) -> Again:
    """Over its budget at once; ends when it sees that it was cancelled."""
    note(ctx, job, "began")
    pause = threading.Event()
    while not job.cancelled:
        pause.wait(0.02)
    note(ctx, job, "cancelled")
    return Again(3_600)


@task(budget=3_600)
def inside_a_statement(job: Any, ctx: Any) -> Done:
    """Sits in one long statement, as a process may when it is killed."""
    if job.attempt == 1 and not is_open(ctx, f"killed {job.id}"):
        note(ctx, job, "began")
        with ctx.db.connection() as connection:
            connection.execute("SET statement_timeout = 0")
            connection.execute("SELECT pg_sleep(600)")
    note(ctx, job, "ended")
    return Done()


@task(max_attempts=3)
def raises(job: Any, ctx: Any, *, text: str) -> Done:
    note(ctx, job, "began")
    raise RuntimeError(text)


@task(batch=8)
def in_batches(job: Any, ctx: Any, *, n: int) -> Done:
    note(ctx, job, "ended")
    return Done()


@task()
def exits(job: Any, ctx: Any) -> Done:
    """Raises what would end an interpreter."""
    note(ctx, job, "began")
    raise SystemExit(3)
