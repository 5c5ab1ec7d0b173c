"""Charges and payment intents as rows say them, and the closed words they use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Of a charge. Only ever forward, in this order; the database refuses anything else."""

    SUBMITTING = "submitting"
    """Written; the rail may or may not have heard of it."""
    SUBMITTED = "submitted"
    PENDING = "pending"
    UNRESOLVED = "unresolved"
    """Past the horizon without a terminal answer: asked hourly, for ever."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        return self in (State.SUCCEEDED, State.FAILED)


class IntentStatus(StrEnum):
    """Of a payment intent."""

    REQUIRES_PAYMENT_METHOD = "requires_payment_method"
    REQUIRES_ACTION = "requires_action"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    CANCELED = "canceled"


class Flow(StrEnum):
    """How a rail reaches the payer."""

    PUSH = "push"
    """A prompt on the payer's phone; we need their number."""
    REDIRECT = "redirect"
    """A page of the rail's that the payer must be sent to."""

    @property
    def status_once_submitted(self) -> IntentStatus:
        if self is Flow.PUSH:
            return IntentStatus.PROCESSING
        return IntentStatus.REQUIRES_ACTION


class FailureCode(StrEnum):
    """Why a charge failed. Closed: rails' own words stay in failure_raw."""

    INSUFFICIENT_FUNDS = "insufficient_funds"
    PAYER_TIMEOUT = "payer_timeout"
    PAYER_DECLINED = "payer_declined"
    INVALID_PAYER = "invalid_payer"
    PAYER_LIMIT_REACHED = "payer_limit_reached"
    PAYER_ACCOUNT_BLOCKED = "payer_account_blocked"
    INVALID_PAYEE = "invalid_payee"
    PAYEE_ACCOUNT_BLOCKED = "payee_account_blocked"
    PROVIDER_ACCOUNT_BLOCKED = "provider_account_blocked"
    """The rail has blocked us: every payment will fail, so it pages."""
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    PROVIDER_ERROR = "provider_error"


MESSAGES: Final[dict[FailureCode, str]] = {
    FailureCode.INSUFFICIENT_FUNDS: "The payer's account does not hold enough money.",
    FailureCode.PAYER_TIMEOUT: "The payer did not approve the payment in time.",
    FailureCode.PAYER_DECLINED: "The payer declined the payment.",
    FailureCode.INVALID_PAYER: "The payer has no account with this provider.",
    FailureCode.PAYER_LIMIT_REACHED: "The payer has reached a limit of their account.",
    FailureCode.PAYER_ACCOUNT_BLOCKED: "The payer's account is blocked or not active.",
    FailureCode.INVALID_PAYEE: "The account that should be paid does not exist.",
    FailureCode.PAYEE_ACCOUNT_BLOCKED: "The account that should be paid cannot receive money.",
    FailureCode.PROVIDER_ACCOUNT_BLOCKED: "The provider does not serve this account.",
    FailureCode.PROVIDER_UNAVAILABLE: "The provider could not be reached.",
    FailureCode.PROVIDER_ERROR: "The provider refused the payment without a known reason.",
}
"""What a merchant may show to a person."""


class AttemptClass(StrEnum):
    """What became of one submit. No answer yet is None, and means the same as UNKNOWN."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Attempt:
    """One row of provider_requests."""

    id: int
    answer: AttemptClass | None
    code: FailureCode | None
    detail: str = field(default="", repr=False)
    """A decline's own words; what went wrong of an unknown one."""


@dataclass(frozen=True)
class Charge:
    """One row of charges. Its payer and key material stay out of every repr."""

    id: str
    payment_intent_id: str
    provider_code: str
    provider_reference_id: str
    provider_ref_extra: Mapping[str, str] = field(repr=False)
    redirect_url: str | None = field(repr=False)
    return_url: str | None = field(repr=False)
    state: State
    amount: int
    currency: str
    payer_ref: str | None = field(repr=False)
    payer_masked: str | None = field(repr=False)
    failure_code: FailureCode | None
    provider_txn_id: str | None
    polls: int
    not_found_streak: int


@dataclass(frozen=True)
class PaymentIntent:
    """One row of payment_intents."""

    id: str
    merchant_id: str
    customer_id: str | None
    amount: int
    currency: str
    status: IntentStatus
    amount_received: int
    amount_refunded: int
    last_payment_error: FailureCode | None
    metadata: Mapping[str, str] = field(repr=False)
    livemode: bool
    created_at: datetime
    updated_at: datetime
