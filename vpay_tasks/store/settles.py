"""Settling rows: finish, again, retry, unknown, park – guarded by the run token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from vpay_tasks.core.settling import Ending
from vpay_tasks.store import sql

SQL = sql.load(__name__)


class Settle(NamedTuple):
    """One row's ending, by the run that held it."""

    id: int
    lease: UUID
    ending: Ending


@dataclass(frozen=True)
class Seen:
    """A row as an ambiguous settle finds it."""

    lease: UUID | None
    settled_by: UUID | None


def settle(connection: sql.Connection, settles: Sequence[Settle]) -> list[bool]:
    """Settle all of `settles` in one statement; for each whether its lease still stood."""
    endings = [item.ending for item in settles]
    rows = sql.run(
        connection,
        SQL["settle"],
        {
            "ids": sql.array([item.id for item in settles]),
            "leases": sql.array([item.lease.hex for item in settles]),
            "verbs": sql.array([ending.verb.value for ending in endings]),
            "delays": sql.array([float(ending.delay) for ending in endings]),
            # Texts of others: quoted by the client library, where there are any.
            "errors": _texts([ending.error for ending in endings]),
            "reasons": _texts([ending.reason and ending.reason.value for ending in endings]),
        },
    )
    stood = [False] * len(settles)
    for (place,) in rows:
        stood[place - 1] = True
    return stood


def _texts(values: list[str | None]) -> list[str | None] | str:
    return values if any(values) else sql.array(["NULL"] * len(values))


def look_again(connection: sql.Connection, job_id: int) -> Seen | None:
    """The row's tokens once nobody is committing it; None when it is gone."""
    rows = sql.run(connection, SQL["look_again"], {"id": job_id})
    return Seen(*rows[0]) if rows else None


def own_transaction(tx: sql.Connection) -> str:
    """The number of the caller's transaction, for `was_committed`."""
    return str(sql.run(tx, SQL["own_transaction"])[0][0])


def was_committed(connection: sql.Connection, transaction: str) -> bool:
    """What became of a transaction that has ended."""
    return bool(sql.run(connection, SQL["was_committed"], {"transaction": transaction})[0][0])
