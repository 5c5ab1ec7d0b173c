"""Deliveries as vendors sign them, by their own packages."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import standardwebhooks
import stripe
import svix

STRIPE = "whsec_stripe_0123456789abcdef"
STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GITHUB = "github-secret-0123456789"
TOKEN = "token-0123456789abcdef"
TABLES: dict[str, dict[str, Any]] = {
    "stripe": {"scheme": "stripe", "secrets": [STRIPE]},
    "acme": {"scheme": "standard-webhooks", "secrets": [STANDARD]},
    "github": {"scheme": "github", "secrets": [GITHUB]},
    "bank": {"scheme": "token", "secrets": [TOKEN], "header": "X-Token"},
}


@dataclass(frozen=True)
class Delivery:
    """A body and the headers it comes with."""

    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def stripe_event(
    id_: object = "evt_1",
    type_: str = "payment_intent.succeeded",
    about: str = "pi_1",
    **more: Any,
) -> bytes:
    object_ = {"id": about, "object": "payment_intent", "amount": 1000, "currency": "eur"}
    event = {"object": "event", "type": type_, "data": {"object": {**object_, **more}}}
    return json.dumps(event if id_ is None else {"id": id_, **event}).encode()


def by_stripe(body: bytes, *, secret: str = STRIPE, at: float | None = None) -> Delivery:
    """Signed with the function that the stripe package verifies with."""
    t = int(time.time() if at is None else at)
    signature = stripe.WebhookSignature._compute_signature(
        f"{t}.{body.decode('utf-8', 'surrogateescape')}", secret
    )
    return Delivery(body, {"Stripe-Signature": f"t={t},v1={signature}"})


def by_hand(body: bytes, *, secret: str = STRIPE, at: float | None = None) -> Delivery:
    """As `by_stripe`, for bodies that are no text."""
    t = int(time.time() if at is None else at)
    signed = str(t).encode() + b"." + body
    signature = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return Delivery(body, {"Stripe-Signature": f"t={t},v1={signature}"})


def by_standard(body: bytes, id_: str = "msg_1", *, secret: str = STANDARD) -> Delivery:
    at = datetime.now(UTC)
    return Delivery(
        body,
        {
            "webhook-id": id_,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": standardwebhooks.Webhook(secret).sign(id_, at, body.decode()),
        },
    )


def by_svix(body: bytes, id_: str = "msg_1", *, secret: str = STANDARD) -> Delivery:
    at = datetime.now(UTC)
    return Delivery(
        body,
        {
            "svix-id": id_,
            "svix-timestamp": str(int(at.timestamp())),
            "svix-signature": svix.Webhook(secret).sign(id_, at, body.decode()),
        },
    )


def by_github(body: bytes, *, guid: str = "guid-1", event: str = "push") -> Delivery:
    digest = hmac.new(GITHUB.encode(), body, hashlib.sha256).hexdigest()
    return Delivery(
        body,
        {
            "X-Hub-Signature-256": f"sha256={digest}",
            "X-GitHub-Delivery": guid,
            "X-GitHub-Event": event,
        },
    )


def by_token(body: bytes, *, token: str = TOKEN) -> Delivery:
    return Delivery(body, {"X-Token": token})
