"""Three journals that agree, made by hand: one payment that succeeded, one that failed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from vpay_sandbox.auditor import audit
from vpay_sandbox.books import Books, Delivery, Event, Payment
from vpay_sandbox.report import Report
from vpay_sandbox.scenarios import Script

ENDPOINTS = [("bakery", "steady"), ("bakery", "shaky")]
BEGAN = datetime(2030, 1, 31, 12, tzinfo=UTC)
# Charge written → event written → first post.
SETTLE_MS, POST_MS = 800, 40

PAID = Payment(
    id="pi_paid",
    merchant="bakery",
    status="succeeded",
    amount=1050,
    currency="EUR",
    received=1050,
    last_error=None,
    order_number="1",
    scenario="approved_first_poll",
    charge="ch_paid",
    reference="ref-paid",
    state="succeeded",
    code=None,
    contradicted=False,
    charge_amount=1050,
    charge_currency="EUR",
    confirmed_at=BEGAN,
    unanswered=0,
)
BROKE = replace(
    PAID,
    id="pi_broke",
    status="requires_payment_method",
    received=0,
    last_error="insufficient_funds",
    order_number="2",
    scenario="failed_not_enough_funds",
    charge="ch_broke",
    reference="ref-broke",
    state="failed",
    code="insufficient_funds",
)


def event_of(payment: Payment, type_: str, **changes: Any) -> Event:
    """The event of a payment's end; `changes` of the payment intent's object in it."""
    error = payment.last_error and {"code": payment.last_error, "message": "…"}
    thing = {
        "id": payment.id,
        "amount": payment.amount,
        "amount_received": payment.received,
        "currency": payment.currency,
        "status": payment.status,
        "last_payment_error": error,
        "latest_charge": payment.charge,
        **changes,
    }
    identity = payment.id.replace("pi_", "evt_")
    body = {"id": identity, "type": type_, "merchant": payment.merchant, "data": {"object": thing}}
    return Event(
        id=identity,
        type=type_,
        about=payment.id,
        merchant=payment.merchant,
        created_at=BEGAN + timedelta(milliseconds=SETTLE_MS),
        body=json.dumps(body).encode(),
    )


PAID_EVENT = event_of(PAID, "payment_intent.succeeded")
BROKE_EVENT = event_of(BROKE, "payment_intent.payment_failed")


def post(event: Event, endpoint: str, **changes: Any) -> dict[str, Any]:
    """A line of the receiver's journal: accepted and verified."""
    line = {
        "at": event.created_at.timestamp() * 1000 + POST_MS,
        "merchant": event.merchant,
        "endpoint": endpoint,
        "event": event.id,
        "sha256": hashlib.sha256(event.body).hexdigest(),
        "stripe": True,
        "verified": True,
        "why": "",
        "status": 200,
    }
    return {**line, **changes}


def effect(what: str, payment: Payment, **changes: Any) -> Mapping[str, Any]:
    """A line of the rail's journal."""
    line = {
        "effect": what,
        "reference": payment.reference,
        "scenario": payment.scenario,
        "amount": "10.50",
        "currency": "EUR",
    }
    if what == "moved":
        line["moved_amount"] = "10.50"
    return {**line, **changes}


def call(op: str, payment: Payment, n: int, t: int = 0) -> Mapping[str, Any]:
    """A line of the rail's journal: a request, at `t` in milliseconds."""
    return {"t": t, "n": n, "op": op, "reference": payment.reference, "payer": "46733123601"}


def answer(n: int, status: int | None, t: int = 0) -> Mapping[str, Any]:
    """A line of the rail's journal: what request `n` was answered."""
    return {"t": t, "n": n, "status": status}


def kill(what: str, payment: Payment, n: int, t: int = 0) -> Mapping[str, Any]:
    """A line of the demo's journal."""
    return {"t": t, "what": what, "n": n, "reference": payment.reference, "program": "somebody"}


def delivered(event: Event, endpoint: str, state: str = "delivered") -> Delivery:
    return Delivery(event.id, event.merchant, endpoint, state, 1, 200)


def agreeing() -> Books:
    both = (PAID_EVENT, BROKE_EVENT)
    names = [endpoint for _, endpoint in ENDPOINTS]
    return Books(
        payments=[PAID, BROKE],
        events=both,
        deliveries=[delivered(event, name) for event in both for name in names],
        parked=[],
        calls=[call("submit", PAID, 1), call("submit", BROKE, 2)],
        answers=[answer(1, 202), answer(2, 202)],
        effects=[effect("prompt", PAID), effect("moved", PAID), effect("prompt", BROKE)],
        posts=[post(event, name) for event in both for name in names],
        kills=[],
    )


def report_of(script: Script, books: Books, *, asked: int = 2) -> Report:
    return audit(books, script, ENDPOINTS, asked=asked)


Change = Callable[[Books], Books]


def paid(**changes: Any) -> Change:
    """Another paid payment."""
    return lambda books: replace(books, payments=[replace(PAID, **changes), BROKE])
