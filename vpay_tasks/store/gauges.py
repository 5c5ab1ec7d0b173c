"""What is going on, in numbers: for `vpay-tasks status` and for Prometheus.

Cheap with a million rows (under 0.2 s): counts stop at a cap and then say so; ages are
exact, read off the front of an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from vpay_tasks.store import sql

SQL = sql.load(__name__)

CAP: Final = 5_000
"""Rows counted per queue, state and priority. Lower: a small backlog reads as "at least";
higher: every look at a large one reads more rows (5,000: 0.1 s for a million in all)."""

WORKERS_MAX: Final = 1_000
"""Rows of workers read: those of a day, so restarts count too."""

STATES: Final = ("ready", "scheduled", "claimed", "running", "parked")


@dataclass(frozen=True)
class StateCount:
    """Jobs of one queue, kind and state; of one dead reason if they are parked.

    `capped`: the true figure may be higher. `broker_losses`: claims of these jobs whose
    message never led to a start.
    """

    queue: str
    kind: str
    state: str
    reason: str | None
    jobs: int
    broker_losses: int
    capped: bool


@dataclass(frozen=True)
class ParkedJob:
    """A dead letter; ages in seconds by the database's clock."""

    id: int
    queue: str
    kind: str
    dedupe_key: str | None
    reason: str
    error: str | None
    starts: int
    failures: int
    age: float


@dataclass(frozen=True)
class WorkerStats:
    """A worker process as its row and its lock show it; ages in seconds."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    threads: int
    draining: bool
    holds_lock: bool
    pulse_age: float
    age: float
    alive: bool
    counters: dict[str, int]

    @property
    def lost(self) -> bool:
        """Dead without a goodbye, which sets `draining` and takes `holds_lock` back."""
        return not self.alive and not (self.draining and not self.holds_lock)


@dataclass(frozen=True)
class Gauges:
    """One look at everything. `ages` holds the queues that have a ready row."""

    counts: tuple[StateCount, ...]
    ages: dict[str, float]
    workers: tuple[WorkerStats, ...]
    parked: tuple[ParkedJob, ...]
    jobs_estimate: int | None
    unset: tuple[str, ...] = ()
    """Settings that our sessions rely on and this one has not, by name."""

    def counters(self) -> Counter[str]:
        """The sum of the counters of all workers that still have a row."""
        total: Counter[str] = Counter()
        for worker in self.workers:
            total.update(worker.counters)
        return total


def look(connection: sql.Connection, *, parked: int = 20) -> Gauges:
    """Read all gauges, with the latest `parked` dead letters. Raises Storage.

    The statements are separate: figures of a busy system may differ by what moved between.
    """
    names = queues(connection)
    return Gauges(
        counts=tuple(jobs_by_state(connection, names)),
        ages=queue_ages(connection, names),
        workers=tuple(worker_stats(connection)),
        parked=tuple(parked_jobs(connection, names, limit=parked)),
        jobs_estimate=jobs_estimate(connection),
        unset=tuple(unset(connection)),
    )


def queues(connection: sql.Connection) -> list[str]:
    """Every queue that has a job, also one that nobody serves."""
    return [name for (name,) in sql.run(connection, SQL["queues"])]


def jobs_by_state(
    connection: sql.Connection, names: Sequence[str], *, cap: int = CAP
) -> list[StateCount]:
    """Jobs of the queues `names` by queue, kind, state and dead reason."""
    rows = sql.run(connection, SQL["jobs_by_state"], {"queues": list(names), "cap": cap})
    return [StateCount(*row) for row in rows]


def queue_ages(connection: sql.Connection, names: Sequence[str]) -> dict[str, float]:
    """now() - min(run_at) over the ready rows of each queue; a queue without one is absent."""
    return dict(sql.run(connection, SQL["queue_ages"], {"queues": list(names)}))


def parked_jobs(connection: sql.Connection, names: Sequence[str], *, limit: int) -> list[ParkedJob]:
    """The latest `limit` dead letters of the queues `names`, the newest first."""
    rows = sql.run(connection, SQL["parked_jobs"], {"queues": list(names), "limit": limit})
    return [ParkedJob(*row) for row in rows]


def jobs_estimate(connection: sql.Connection) -> int | None:
    """The planner's row count of the jobs table; None before its first vacuum."""
    rows = sql.run(connection, SQL["jobs_estimate"])
    return rows[0][0] if rows else None


def unset(connection: sql.Connection) -> list[str]:
    """Limits that this session has not, `jit` if it has it."""
    return [name for (name,) in sql.run(connection, SQL["unset"])]


def worker_stats(connection: sql.Connection) -> list[WorkerStats]:
    """Every worker that has a row, alive or not."""
    return [
        WorkerStats(
            id=row[0],
            host=row[1],
            pid=row[2],
            queues=tuple(row[3]),
            threads=row[4],
            draining=row[5],
            holds_lock=row[6],
            pulse_age=max(row[7], 0.0),
            age=max(row[8], 0.0),
            alive=row[9],
            counters=_counters(row[10]),
        )
        for row in sql.run(connection, SQL["worker_stats"], {"limit": WORKERS_MAX})
    ]


def _counters(stats: Any) -> dict[str, int]:
    """The whole numbers under "counters": a row of another version may hold anything."""
    found = stats.get("counters") if isinstance(stats, dict) else None
    if not isinstance(found, dict):
        return {}
    return {str(k): v for k, v in found.items() if isinstance(v, int) and v >= 0}
