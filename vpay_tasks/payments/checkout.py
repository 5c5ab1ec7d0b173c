"""Checkout sessions: a page on which an intent can be paid, for a while."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from vpay_tasks.core.charge import IntentStatus
from vpay_tasks.core.customer import CheckoutSession
from vpay_tasks.core.events import EventType, checkout_session_object
from vpay_tasks.core.ids import RAW_BYTES, new_id
from vpay_tasks.errors import Conflict, InvalidRequest, NotFound, sanitise
from vpay_tasks.payments import outbox
from vpay_tasks.payments.inputs import check_name, check_url
from vpay_tasks.store import charges, intents, sessions, sql
from vpay_tasks.store.db import Database

LASTS_S: Final = 86_400.0
"""A day, as payers know it from elsewhere."""
LASTS_MIN_S, LASTS_MAX_S = 60.0, 30 * 86_400.0


def create_session(
    tx: sql.Connection,
    merchant_id: str,
    intent_id: str,
    *,
    url: str,
    expires_in: float = LASTS_S,
) -> tuple[CheckoutSession, str]:
    """An open session for an intent that nobody is paying, and its client secret, which is
    said here once: only a hash is kept. `url` is the page, `expires_in` seconds. Raises
    InvalidRequest, NotFound, Conflict (the intent is over, being paid, or has a session)."""
    check_name("intent_id", intent_id)
    check_url("url", url)
    is_number = isinstance(expires_in, int | float)
    if not is_number or not LASTS_MIN_S <= expires_in <= LASTS_MAX_S:
        raise InvalidRequest(f"expires_in={expires_in!r}: 60 seconds to 30 days")
    if not intents.lock(tx, intent_id):
        raise NotFound(f"no payment intent {sanitise(intent_id, 64)!r}")
    intent = intents.read(tx, intent_id)
    if intent is None or intent.merchant_id != merchant_id:
        raise NotFound(f"no payment intent {sanitise(intent_id, 64)!r}")
    open_ = intent.status is IntentStatus.REQUIRES_PAYMENT_METHOD
    if not open_ or charges.of_intent(tx, intent_id) is not None:
        raise Conflict(f"payment intent {intent_id} is over, or being paid")
    secret = f"{intent_id}_secret_{secrets.token_urlsafe(24)}"
    session = sessions.insert(
        tx,
        id=new_id("cs", secrets.token_bytes(RAW_BYTES)),
        merchant_id=merchant_id,
        payment_intent_id=intent_id,
        url=url,
        client_secret=_hash(secret),
        livemode=intent.livemode,
        expires_in=expires_in,
    )
    if session is None:
        raise Conflict(f"payment intent {intent_id} has a checkout session")
    return session, secret


def session_of_secret(
    connection: sql.Connection, session_id: str, client_secret: str
) -> CheckoutSession:
    """The session, for a browser that shows its secret. Raises NotFound for a wrong one, too."""
    session = sessions.read(connection, session_id)
    if session is None or not sessions.by_secret(connection, session_id, _hash(client_secret)):
        raise NotFound("no such checkout session")
    return session


def expire_session(db: Database, merchant_id: str, session_id: str) -> CheckoutSession:
    """Close an open session before its time. Raises NotFound, Conflict (over, or being paid)."""
    with db.connection() as connection:
        session = sessions.read(connection, session_id)
    if session is None or session.merchant_id != merchant_id:
        raise NotFound(f"no checkout session {sanitise(session_id, 64)!r}")
    expired = _expire(db, session.id, session.payment_intent_id, only_due=False)
    if expired is None:
        raise Conflict(f"checkout session {session_id} is over, or being paid")
    return expired


def expire_due(db: Database, due: sessions.Due) -> bool:
    """One session of the sweep's page; whether it was expired. Judged behind the lock that a
    confirm takes, too, so never beside a live charge."""
    return _expire(db, due.id, due.payment_intent_id, only_due=True) is not None


def _expire(
    db: Database, session_id: str, intent_id: str, *, only_due: bool
) -> CheckoutSession | None:
    with db.transaction() as tx:
        intents.lock(tx, intent_id)
        intent = intents.read(tx, intent_id)
        session = sessions.expire(tx, session_id, only_due=only_due)
        if session is not None and intent is not None:
            outbox.append(
                tx,
                EventType.CHECKOUT_SESSION_EXPIRED,
                object_id=session.id,
                merchant_id=session.merchant_id,
                customer_id=intent.customer_id,
                livemode=session.livemode,
                at=session.updated_at,
                thing=checkout_session_object(session),
            )
        return session


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
