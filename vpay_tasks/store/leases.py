"""Leases while they run and when they end: renew, look, reap."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from vpay_tasks.store import sql

SQL = sql.load(__name__)

Lease = tuple[int, UUID]
"""A job's id and the token that its row carries."""

MAX_CRASHES: Final = 5
"""Processes in a row that one row may take down. Lower: a bad deploy parks good jobs;
higher: a poisoned one keeps killing workers."""

SILENCE_S: Final = 1.2
"""Two missed pulses and a bit. Lower: a pause of Postgres frees running jobs; higher: a
killed worker's jobs wait for longer than two seconds."""

SETTLING_S: Final = 3.0
"""How long a reaper's session must have stood before it frees anything: after an outage
live workers need a moment to take their locks again."""


@dataclass(frozen=True)
class Reaped:
    """One row freed. `why`: claim_expired, run_expired or worker_gone."""

    id: int
    kind: str
    queue: str
    crashes: int
    why: str
    parked: bool


def renew(connection: sql.Connection, leases: Collection[Lease], *, run_lease: float) -> set[Lease]:
    """Push the leases' ends out; those that were. The others need not be lost, since a row
    that somebody holds is passed over: ask `still_held`."""
    rows = sql.run(connection, SQL["renew"], {**_given(leases), "run_lease": run_lease})
    return {(id_, lease) for id_, lease in rows}


def still_held(connection: sql.Connection, leases: Collection[Lease]) -> set[Lease]:
    """Those of `leases` whose rows still carry the token."""
    return {(id_, lease) for id_, lease in sql.run(connection, SQL["still_held"], _given(leases))}


def reap_expired(connection: sql.Connection, *, protected: list[str]) -> list[Reaped]:
    """Free up to 500 rows past their lease."""
    params = {"max_crashes": MAX_CRASHES, "protected": protected}
    return [Reaped(*row) for row in sql.run(connection, SQL["reap_expired"], params)]


def reap_gone(
    connection: sql.Connection,
    *,
    protected: list[str],
    silence: float = SILENCE_S,
    settling: float = SETTLING_S,
) -> list[Reaped]:
    """Free up to 500 running rows of workers that died: lock gone, silent for `silence`
    seconds, as seen by a session that has stood for `settling` seconds."""
    params = {
        "max_crashes": MAX_CRASHES,
        "protected": protected,
        "silence": silence,
        "settling": settling,
    }
    return [Reaped(*row) for row in sql.run(connection, SQL["reap_gone"], params)]


def _given(leases: Collection[Lease]) -> dict[str, object]:
    return {"ids": [id_ for id_, _ in leases], "leases": [lease for _, lease in leases]}
