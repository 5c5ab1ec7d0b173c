"""Settling rows: finish, again, retry, unknown, park – guarded by the run token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from vpay_tasks.core.settling import Ending
from vpay_tasks.store import sql

SQL = sql.load(__name__)


@dataclass(frozen=True)
class Settle:
    """One row's ending, by the run that held it."""

    id: int
    lease: UUID
    ending: Ending


@dataclass(frozen=True)
class Seen:
    """A row as an ambiguous settle finds it."""

    lease: UUID | None
    settled_by: UUID | None


def settle(connection: sql.Connection, settles: Sequence[Settle]) -> set[tuple[int, UUID]]:
    """Settle all of `settles` in one statement; the (id, token) that still stood."""
    rows = sql.run(
        connection,
        SQL["settle"],
        {
            "ids": [item.id for item in settles],
            "leases": [item.lease for item in settles],
            "verbs": [item.ending.verb.value for item in settles],
            "delays": [float(item.ending.delay) for item in settles],
            "errors": [item.ending.error for item in settles],
            "reasons": [item.ending.reason and item.ending.reason.value for item in settles],
        },
    )
    return {(id_, lease) for id_, lease in rows}


def look_again(connection: sql.Connection, job_id: int) -> Seen | None:
    """The row's tokens once nobody is committing it; None when it is gone."""
    rows = sql.run(connection, SQL["look_again"], {"id": job_id})
    return Seen(*rows[0]) if rows else None
