"""Payment intents, as applications make them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from vpay_tasks.core import money
from vpay_tasks.core.charge import PaymentIntent
from vpay_tasks.core.events import EventType
from vpay_tasks.core.ids import RAW_BYTES, new_id
from vpay_tasks.errors import Conflict, InvalidRequest, NotFound, sanitise
from vpay_tasks.payments import settlement
from vpay_tasks.store import charges, intents, sql
from vpay_tasks.store.db import Database

KEYS_MAX, KEY_MAX, VALUE_MAX = 50, 40, 500
"""Stripe's limits of metadata: it rides in every event, which has to stay small."""


def create_intent(
    tx: sql.Connection,
    merchant_id: str,
    amount: int,
    currency: str,
    *,
    customer_id: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> PaymentIntent:
    """Write an intent of `amount` minor units in the caller's transaction (a psycopg 3
    connection). `metadata` is the merchant's own: at most 50 strings, shown in events.
    Raises InvalidRequest, before anything is written."""
    for what, name in (("merchant_id", merchant_id), ("customer_id", customer_id)):
        if not (name is None and what == "customer_id"):
            _check_name(what, name)
    return intents.insert(
        tx,
        id=new_id("pi", secrets.token_bytes(RAW_BYTES)),
        merchant_id=merchant_id,
        customer_id=customer_id,
        amount=money.checked_amount(amount, currency),
        currency=currency,
        metadata={} if metadata is None else _checked(metadata),
        livemode=False,  # test mode only, until deliveries have an egress guard
    )


def cancel(db: Database, intent_id: str) -> PaymentIntent:
    """Close an intent that nobody is paying. Raises NotFound, or Conflict when it is over or
    has a live charge: only the rail's answer ends that one."""
    check_id(intent_id)
    with db.transaction() as tx:
        if not intents.lock(tx, intent_id):
            raise NotFound(f"no payment intent {sanitise(intent_id, 64)!r}")
        charge = charges.of_intent(tx, intent_id)
        if charge is not None and not charge.state.terminal:
            raise Conflict(f"payment intent {intent_id} has a live charge, {charge.id}")
        intent = intents.cancel(tx, intent_id)
        if intent is None:
            raise Conflict(f"payment intent {intent_id} is over already")
        latest = None if charge is None else charge.id
        settlement.tell(tx, EventType.PAYMENT_INTENT_CANCELED, intent, latest)
        return intent


def check_id(intent_id: object) -> None:
    """Raise InvalidRequest for what can't be an intent's id."""
    _check_name("intent_id", intent_id)


def _check_name(what: str, name: object) -> None:
    if not (isinstance(name, str) and 1 <= len(name) <= 64 and name.isprintable()):
        raise InvalidRequest(f"{what}: 1 to 64 printable characters")


def _checked(metadata: object) -> Mapping[str, str]:
    if not isinstance(metadata, Mapping):
        raise InvalidRequest("metadata: a mapping of strings to strings")
    if len(metadata) > KEYS_MAX:
        raise InvalidRequest(f"metadata: {KEYS_MAX} keys at most")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidRequest("metadata: keys and values are strings")
        if not 1 <= len(key) <= KEY_MAX or len(value) > VALUE_MAX:
            raise InvalidRequest(
                f"metadata: keys of 1 to {KEY_MAX} characters, values of at most {VALUE_MAX}"
            )
        # Postgres refuses NUL, and UTF-8 half a surrogate pair.
        if any(c == "\x00" or "\ud800" <= c <= "\udfff" for c in key + value):
            raise InvalidRequest("metadata: no NUL, no lone surrogates")
    return metadata
