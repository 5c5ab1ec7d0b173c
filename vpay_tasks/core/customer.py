"""Customers and checkout sessions as rows say them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True)
class Customer:
    """One row of customers. What tells who it is stays out of every repr."""

    id: str
    merchant_id: str
    name: str | None = field(repr=False)
    email: str | None = field(repr=False)
    phone: str | None = field(repr=False)
    metadata: Mapping[str, str] = field(repr=False)
    livemode: bool
    created_at: datetime
    updated_at: datetime
    last_used_at: datetime
    erased: bool


class SessionStatus(StrEnum):
    """Of a checkout session: whether it can still be paid."""

    OPEN = "open"
    COMPLETE = "complete"
    EXPIRED = "expired"


@dataclass(frozen=True)
class CheckoutSession:
    """One row of checkout_sessions: a page on which one payment intent can be paid."""

    id: str
    merchant_id: str
    payment_intent_id: str
    status: SessionStatus
    payment_status: str
    url: str = field(repr=False)
    livemode: bool
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
