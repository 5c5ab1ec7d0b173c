"""The workers' own rows: who is alive, with how many threads, for which queues."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from vpay_tasks.store import sql

SQL = sql.load(__name__)


@dataclass(frozen=True)
class Worker:
    """One worker process. `id` is random: a host and pid come back with other work."""

    id: str
    host: str
    pid: int
    queues: list[str]
    threads: int


def try_lock(connection: sql.Connection, worker_id: str) -> bool:
    """Take this process's proof of life on `connection`. Once per session: it counts."""
    ((taken,),) = sql.run(connection, SQL["try_lock"], {"id": worker_id})
    return bool(taken)


def pulse(
    connection: sql.Connection,
    worker: Worker,
    *,
    draining: bool,
    holds_lock: bool,
    slowest: float,
    stats: dict[str, Any],
) -> None:
    """Say "I live", and what has been counted; `slowest` is the worst recent pulse, seconds."""
    sql.run(
        connection,
        SQL["pulse"],
        {
            "id": worker.id,
            "host": worker.host,
            "pid": worker.pid,
            "queues": worker.queues,
            "threads": worker.threads,
            "draining": draining,
            "holds_lock": holds_lock,
            "slowest": slowest,
            "stats": json.dumps(stats),
        },
    )


def leave(connection: sql.Connection, worker_id: str, *, stats: dict[str, Any]) -> None:
    """The last word of a worker that ends in good order."""
    sql.run(connection, SQL["leave"], {"id": worker_id, "stats": json.dumps(stats)})


def sweep_dead(connection: sql.Connection) -> None:
    """Forget up to 500 workers that have been silent for a day."""
    sql.run(connection, SQL["sweep_dead"])
