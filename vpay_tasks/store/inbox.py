"""Vendors' events as they are kept, granted, re-armed, scanned and thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from vpay_tasks.core import kinds
from vpay_tasks.core.inbox import SHOWN_MAX
from vpay_tasks.store import sql

SQL = sql.load(__name__)

State = Literal["accepted", "retrying", "done", "ignored", "dead"]
STATES: Final[tuple[State, ...]] = ("accepted", "retrying", "done", "ignored", "dead")

PAGE: Final = 500
"""Rows of one scan or sweep (there as a literal). More hold their locks for longer."""
KEPT_S: Final = 30 * 86_400.0
"""How long what is over is kept, and so how long a repeat of it is known as one. Vendors send
again for days; where no time is signed, what somebody caught is new again behind this."""
UNPARSEABLE: Final = "unparseable"
"""The reason of rows whose body is no event: no repeat of theirs can help."""


@dataclass(frozen=True)
class Keeping:
    """A verified delivery, as it is to be kept. `unparseable` says what its body is not."""

    vendor: str
    account: str
    event_id: str
    type: str
    reference: str | None
    lane: str
    verified_by: str
    digest: bytes
    body: bytes = field(repr=False)
    unparseable: bool = False


@dataclass(frozen=True)
class Kept:
    """The row of a delivery, first or repeated."""

    id: int
    state: State
    verdict: str | None
    reason: str | None
    reference: str | None
    lane: str
    deliveries: int
    same_body: bool
    conflicts: int


@dataclass(frozen=True)
class Row:
    """What a grant must know of an event. `wait` is seconds to the next attempt."""

    id: int
    vendor: str
    account: str
    event_id: str
    type: str
    reference: str | None
    state: State
    attempts: int
    deliveries: int
    received_at: datetime
    wait: float
    body: bytes = field(repr=False)

    @property
    def over(self) -> bool:
        return self.state in ("done", "ignored", "dead")


@dataclass(frozen=True)
class End:
    """What became of a row: over, or failed and to be tried again."""

    state: State
    verdict: str | None
    reason: str | None


@dataclass(frozen=True)
class Waiting:
    """One look for alarms. `age` is seconds since the receipt of the oldest open event."""

    age: float | None = None
    open: int = 0
    dead: int = 0


@dataclass(frozen=True)
class Listed:
    """A row as an operator sees it; instants are aware, UTC."""

    id: int
    vendor: str
    account: str
    event_id: str
    type: str
    reference: str | None
    state: State
    verdict: str | None
    reason: str | None
    attempts: int
    deliveries: int
    conflicts: int
    last_error: str | None
    verified_by: str
    received_at: datetime
    delivered_at: datetime
    next_attempt_at: datetime | None
    ended_at: datetime | None


def keep(tx: sql.Connection, given: Keeping) -> Kept:
    """Keep the delivery, or count a repeat of it: `deliveries` is 1 for the first."""
    params = {
        "vendor": given.vendor,
        "account": given.account,
        "event_id": given.event_id,
        "type": given.type,
        "reference": given.reference and given.reference[:SHOWN_MAX],
        "lane": given.lane,
        "verified_by": given.verified_by,
        "digest": given.digest,
        "body": given.body,
        "unparseable": UNPARSEABLE if given.unparseable else None,
    }
    (row,) = sql.run(tx, SQL["keep"], params)
    return Kept(*row)


def read(connection: sql.Connection, row_id: int) -> Row | None:
    """The event; None when there is no such row (any more)."""
    rows = sql.run(connection, SQL["read"], {"row_id": row_id})
    return Row(row_id, *_aware(rows[0])) if rows else None


def outcomes(connection: sql.Connection, row_ids: Sequence[int]) -> dict[int, End]:
    """Those of the rows that are over or have failed an attempt."""
    rows = sql.run(connection, SQL["outcomes"], {"row_ids": list(row_ids)})
    return {id_: End(*rest) for id_, *rest in rows}


def fail(connection: sql.Connection, row: Row, *, error: str, delay: float) -> bool:
    """Count a failed attempt; the next is `delay` seconds ahead. False: another run moved the
    row since it was read."""
    params = {"row_id": row.id, "attempts": row.attempts, "error": error, "delay": delay}
    return bool(sql.run(connection, SQL["fail"], params))


def end(
    tx: sql.Connection,
    row_id: int,
    state: Literal["done", "ignored", "dead"],
    *,
    verdict: str | None = None,
    reason: str | None = None,
    failed: bool = False,
    error: str | None = None,
) -> bool:
    """End the row. In one transaction with the end of its job. False: it was over already."""
    params = {
        "row_id": row_id,
        "state": state,
        "verdict": verdict,
        "reason": reason,
        "failed": int(failed),
        "error": error,
    }
    return bool(sql.run(tx, SQL["end"], params))


def rearm(tx: sql.Connection, row_id: int, states: Sequence[State]) -> str | None:
    """Make a row of one of `states` accepted again, with no attempt counted; its lane. None:
    it is in none of them, or has no bytes any more. Its job is the caller's to write, in the
    same transaction."""
    rows = sql.run(tx, SQL["rearm"], {"row_id": row_id, "states": list(states)})
    return rows[0][0] if rows else None


def scan(connection: sql.Connection) -> list[int]:
    """Write a job for each waiting row that has none, a page at most; the jobs' ids."""
    kind = kinds.GRANT_INBOX
    params = {
        "queue": kind.queue,
        "kind": kind.name,
        "priority": kind.priority,
        "key_prefix": kinds.INBOX_KEY,
        "page": PAGE,
    }
    return [row[0] for row in sql.run(connection, SQL["scan"], params)]


def sweep_inbox(connection: sql.Connection) -> int:
    """Delete rows that were done or ignored more than KEPT_S ago, a page at most; how many."""
    return len(sql.run(connection, SQL["sweep_inbox"], {"age": KEPT_S}))


def sweep_bodies(connection: sql.Connection, *, keep: float) -> int:
    """Empty the bodies of rows that were given up more than `keep` seconds ago, a page at most;
    how many."""
    return len(sql.run(connection, SQL["sweep_bodies"], {"keep": keep}))


def page(
    connection: sql.Connection,
    *,
    row_id: int | None = None,
    state: State | None = None,
    vendor: str | None = None,
    type: str | None = None,  # noqa: A002 - the contract's word
    reference: str | None = None,
    event_id: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Listed]:
    """Rows that fit every filter given, the newest first, below the row `before`."""
    params = {
        "row_id": row_id,
        "state": state,
        "vendor": vendor,
        "type": type,
        "reference": reference,
        "event_id": event_id,
        "before": before,
        "limit": limit,
    }
    return [Listed(*_aware(row)) for row in sql.run(connection, SQL["page"], params)]


def waiting(connection: sql.Connection, *, cap: int) -> Waiting:
    """What waits and what was given up, each counted up to `cap`."""
    ((age, open_, dead),) = sql.run(connection, SQL["waiting"], {"cap": cap})
    return Waiting(age, open_, dead)


def body(connection: sql.Connection, row_id: int) -> bytes | None:
    """The bytes as they came; None when there is no such row."""
    rows = sql.run(connection, SQL["body"], {"row_id": row_id})
    return bytes(rows[0][0]) if rows else None


def _aware(row: sql.Row) -> list[Any]:
    """Instants come without a zone, since the session's own could be any."""
    return [v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for v in row]
