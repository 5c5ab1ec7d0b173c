"""Events that are read back: by their merchant, and by whoever runs the system."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from vpay_tasks.store import sql

SQL = sql.load(__name__)


@dataclass(frozen=True)
class Listed:
    """An event of a merchant's list. `body` is what was, or will be, delivered."""

    list_seq: int
    id: str
    type: str
    created_at: datetime
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class EventLine:
    """An event, for a person."""

    id: str
    merchant_id: str
    type: str
    object_id: str
    state: str
    attempts: int
    body_rev: int
    created_at: datetime
    deliveries: int


def page_listed(
    connection: sql.Connection, merchant_id: str, *, after: int, limit: int
) -> list[Listed]:
    """Up to `limit` of the merchant's events behind the list's place `after`. What is listed
    later stands later, whatever committed when: a reader who goes on misses nothing."""
    params = {"merchant_id": merchant_id, "after": after, "limit": limit}
    return [Listed(*row) for row in sql.run(connection, SQL["page_listed"], params)]


def place_of(connection: sql.Connection, merchant_id: str, event_id: str) -> int | None:
    """The event's place in its merchant's list; None: it is not there."""
    params = {"merchant_id": merchant_id, "event_id": event_id}
    rows = sql.run(connection, SQL["place_of"], params)
    return rows[0][0] if rows else None


def listed_body(connection: sql.Connection, merchant_id: str, event_id: str) -> bytes | None:
    """The event's stored bytes; None: not the merchant's, or not listed yet."""
    params = {"merchant_id": merchant_id, "event_id": event_id}
    rows = sql.run(connection, SQL["listed_body"], params)
    return bytes(rows[0][0]) if rows else None


def newest(
    connection: sql.Connection,
    *,
    event_id: str | None = None,
    merchant_id: str | None = None,
    state: str | None = None,
    types: tuple[str, ...] | None = None,
    since: datetime | None = None,
    limit: int,
) -> list[EventLine]:
    """Up to `limit` events that match, the newest first. None leaves all."""
    params = {
        "event_id": event_id,
        "merchant_id": merchant_id,
        "state": state,
        "types": list(types) if types is not None else None,
        "since": since,
        "limit": limit,
    }
    return [EventLine(*row) for row in sql.run(connection, SQL["newest"], params)]
