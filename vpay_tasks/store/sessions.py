"""Checkout sessions: open until they are paid or over. Every move is a compare-and-swap."""

from __future__ import annotations

from dataclasses import dataclass

from vpay_tasks.core.customer import CheckoutSession, SessionStatus
from vpay_tasks.core.walk import Place
from vpay_tasks.store import sql

SQL = sql.load(__name__)


@dataclass(frozen=True)
class Due(Place):
    """A session whose time is over, and the intent to lock before it is judged."""

    payment_intent_id: str = ""


def insert(
    tx: sql.Connection,
    *,
    id: str,  # noqa: A002 - the column's name
    merchant_id: str,
    payment_intent_id: str,
    url: str,
    client_secret: bytes,
    livemode: bool,
    expires_in: float,
) -> CheckoutSession | None:
    """An open session of `expires_in` seconds, or None: the intent has one. `client_secret`
    is the SHA-256 of the secret."""
    rows = sql.run(
        tx,
        SQL["insert"],
        {
            "id": id,
            "merchant_id": merchant_id,
            "payment_intent_id": payment_intent_id,
            "url": url,
            "client_secret": client_secret,
            "livemode": livemode,
            "expires_in": expires_in,
        },
    )
    return _session(rows[0]) if rows else None


def read(connection: sql.Connection, session_id: str) -> CheckoutSession | None:
    rows = sql.run(connection, SQL["read"], {"id": session_id})
    return _session(rows[0]) if rows else None


def by_secret(connection: sql.Connection, session_id: str, client_secret: bytes) -> bool:
    """Whether that is the session's secret, by its SHA-256."""
    params = {"id": session_id, "client_secret": client_secret}
    rows = sql.run(connection, SQL["by_secret"], params)
    return bool(rows and rows[0][0])


def expired_of_intent(tx: sql.Connection, intent_id: str) -> bool:
    """Whether the intent had a session that is over. Lock the intent first."""
    return bool(sql.run(tx, SQL["expired_of_intent"], {"payment_intent_id": intent_id}))


def complete(tx: sql.Connection, intent_id: str) -> bool:
    """The open session of an intent that was paid → `complete`; whether there was one."""
    return bool(sql.run(tx, SQL["complete"], {"payment_intent_id": intent_id}))


def page_due(connection: sql.Connection, after: Place, *, page: int) -> list[Due]:
    """Sessions whose time is over and that nobody is paying, the first over first, from behind
    a place."""
    params = {"after_at": after.at, "after_id": after.id, "page": page}
    return [Due(*row) for row in sql.run(connection, SQL["page_due"], params)]


def expire(tx: sql.Connection, session_id: str, *, only_due: bool) -> CheckoutSession | None:
    """`open` → `expired`, or None: it is over already, not due, or being paid. Lock its intent
    first, in a statement of its own."""
    rows = sql.run(tx, SQL["expire"], {"id": session_id, "only_due": only_due})
    return _session(rows[0]) if rows else None


def _session(row: sql.Row) -> CheckoutSession:
    (id_, merchant_id, intent_id, status, *rest) = row
    return CheckoutSession(id_, merchant_id, intent_id, SessionStatus(status), *rest)
