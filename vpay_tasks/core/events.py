"""Events: the closed list of types, and the one renderer of their bytes.

A body is rendered once, stored, and never again: what is signed and sent in a year is
what was written beside the fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from vpay_tasks.core.charge import MESSAGES, PaymentIntent


class EventType(StrEnum):
    """A type joins the list in the change that writes it."""

    PAYMENT_INTENT_SUCCEEDED = "payment_intent.succeeded"
    PAYMENT_INTENT_PAYMENT_FAILED = "payment_intent.payment_failed"
    PAYMENT_INTENT_CANCELED = "payment_intent.canceled"


def render(
    event_id: str,
    type: EventType,  # noqa: A002 - the word of the format
    *,
    created: int,
    livemode: bool,
    merchant: str,
    thing: Mapping[str, Any],
) -> bytes:
    """The event's body (spec 0): these keys in this order, UTF-8, no spaces. `created` is
    whole Unix seconds; `thing` is what happened to something, already in its own order."""
    body = {
        "id": event_id,
        "object": "event",
        "type": type.value,
        "created": created,
        "livemode": livemode,
        "merchant": merchant,
        "data": {"object": thing},
    }
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
