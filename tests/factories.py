"""Rows as tests need them, written as plainly as the schema allows."""

from __future__ import annotations

import uuid
from typing import Any

from vpay_tasks.core.task import Kind
from vpay_tasks.store import claims, jobs, workers
from vpay_tasks.store.db import Connection, Database


def a_worker(
    database: Database,
    *,
    threads: int = 8,
    queues: tuple[str, ...] = ("default",),
    draining: bool = False,
    holds_lock: bool = False,
) -> str:
    """A worker's row, as fresh as its last pulse."""
    id_ = f"w_{uuid.uuid4().hex[:16]}"
    with database.connection() as connection:
        workers.pulse(
            connection,
            workers.Worker(id_, "host", 1, list(queues), threads),
            draining=draining,
            holds_lock=holds_lock,
            slowest=0.01,
            stats={},
        )
    return id_


def a_job(database: Database, kind: str = "a_kind", **options: Any) -> int:
    """A job, due now unless it has a `delay`. `queue` is the kind's."""
    shape = Kind(kind, queue=options.pop("queue", "default"))
    with database.transaction() as tx:
        id_ = jobs.enqueue(tx, shape, options.pop("payload", {}), **options).id
    assert id_ is not None
    return id_


def as_a_dispatcher(
    *,
    batches: dict[str, int] | None = None,
    cursor: str = "",
    lanes_first: bool = False,
    claim_lease: float = 30.0,
    window: float = 1.25,
) -> dict[str, Any]:
    """What a dispatcher passes to a claim beside the queue."""
    return {
        "dispatcher": "d_test",
        "claim_lease": claim_lease,
        "window": window,
        "batches": batches or {},
        "lanes_first": lanes_first,
        "cursor": cursor,
    }


def claimed(connection: Connection, queue: str = "default", **options: Any) -> claims.Claim:
    """One claim by a dispatcher."""
    for due in claims.due_queues(connection, [queue]):
        return claims.claim(connection, due, **as_a_dispatcher(**options))
    return claims.Claim([], 0, 0, "")


def claimed_ids(connection: Connection, queue: str = "default", **options: Any) -> list[int]:
    """The ids of one claim, in the order of its messages."""
    return [
        id_ for message in claimed(connection, queue, **options).messages for id_ in message.ids
    ]


def started(
    connection: Connection, *, worker: str = "w_test", run_lease: float = 30.0, **options: Any
) -> list[jobs.StartedJob]:
    """Everything that one claim gives, started."""
    found = []
    for message in claimed(connection, **options).messages:
        tried = jobs.start(
            connection,
            [(id_, message.lease) for id_ in message.ids],
            run=uuid.uuid4(),
            worker=worker,
            run_lease=run_lease,
            known=["a_kind"],
        )
        found += [job for job in tried if job is not None]
    return found


def row(database: Database, job_id: int) -> dict[str, Any] | None:
    """A job's row by column; None when it is gone."""
    with database.connection() as connection:
        cursor = connection.execute("SELECT * FROM vpay.jobs WHERE id = %s", (job_id,))
        found = cursor.fetchone()
        names = [column.name for column in cursor.description or ()]
    return dict(zip(names, found, strict=True)) if found is not None else None


def change(database: Database, assignments: str, job_id: int) -> None:
    """Move a row in time, say: `change(database, "run_at = now()", id)`."""
    with database.connection() as connection:
        connection.execute(f"UPDATE vpay.jobs SET {assignments} WHERE id = {job_id}".encode())
