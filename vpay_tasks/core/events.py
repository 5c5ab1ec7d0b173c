"""Events: the closed list of types, and the one renderer of their bytes.

A body is rendered once, stored, and never again: what is signed and sent in a year is
what was written beside the fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from vpay_tasks.core.charge import MESSAGES, PaymentIntent
from vpay_tasks.core.customer import CheckoutSession, Customer
from vpay_tasks.errors import Internal


class EventType(StrEnum):
    """A type joins the list in the change that writes it."""

    PAYMENT_INTENT_SUCCEEDED = "payment_intent.succeeded"
    PAYMENT_INTENT_PAYMENT_FAILED = "payment_intent.payment_failed"
    PAYMENT_INTENT_CANCELED = "payment_intent.canceled"
    CHECKOUT_SESSION_EXPIRED = "checkout.session.expired"
    CUSTOMER_CREATED = "customer.created"
    CUSTOMER_UPDATED = "customer.updated"
    CUSTOMER_DELETED = "customer.deleted"


def render(
    event_id: str,
    type: EventType | Literal["ping"],  # noqa: A002 - the word of the format
    *,
    created: int,
    livemode: bool,
    merchant: str,
    thing: Mapping[str, Any],
) -> bytes:
    """The event's body (spec 0): these keys in this order, UTF-8, no spaces. `created` is
    whole Unix seconds; `thing` is what happened to something, already in its own order. A
    ping is no event of the list: nothing happened."""
    body = {
        "id": event_id,
        "object": "event",
        "type": str(type),
        "created": created,
        "livemode": livemode,
        "merchant": merchant,
        "data": {"object": thing},
    }
    return _bytes(body)


def redacted(body: bytes) -> bytes:
    """`body` without what could tell who the customer is: their name, address and number, and
    the merchant's own words about them or their payment. What happened, to which object, when
    and for how much stays. Raises Internal for bytes that are no event."""
    try:
        event = json.loads(body)
        thing = event["data"]["object"]
        for key in thing.keys() & _PERSONAL:
            thing[key] = {} if key == "metadata" else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Internal("a stored event body can't be read") from error
    return _bytes(event)


_PERSONAL = frozenset({"name", "email", "phone", "metadata"})


def _bytes(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def payment_intent_object(intent: PaymentIntent, latest_charge: str | None) -> dict[str, Any]:
    """A payment intent as merchants see it. Nothing of the payer, nothing of the rail."""
    error = intent.last_payment_error
    return {
        "id": intent.id,
        "object": "payment_intent",
        "amount": intent.amount,
        "amount_received": intent.amount_received,
        "amount_refunded": intent.amount_refunded,
        "currency": intent.currency,
        "status": intent.status.value,
        "last_payment_error": (
            None if error is None else {"code": error.value, "message": MESSAGES[error]}
        ),
        "metadata": dict(intent.metadata),
        "created": int(intent.created_at.timestamp()),
        "latest_charge": latest_charge,
    }


def customer_object(customer: Customer) -> dict[str, Any]:
    """A customer as merchants see it."""
    return {
        "id": customer.id,
        "object": "customer",
        "name": customer.name,
        "email": customer.email,
        "phone": customer.phone,
        "metadata": dict(customer.metadata),
        "created": int(customer.created_at.timestamp()),
        "deleted": customer.erased,
    }


def checkout_session_object(session: CheckoutSession) -> dict[str, Any]:
    """A checkout session as merchants see it; one that is over has no page to send anybody to.
    Its secret is in no event: bodies are stored, and sent over and over."""
    return {
        "id": session.id,
        "object": "checkout.session",
        "payment_intent": session.payment_intent_id,
        "status": session.status.value,
        "payment_status": session.payment_status,
        "url": session.url if session.status == "open" else None,
        "created": int(session.created_at.timestamp()),
        "expires_at": int(session.expires_at.timestamp()),
    }
