"""What every payment rail looks like from above. Nothing outside an adapter names a rail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vpay_tasks.core.answers import (
    Accepted,
    Declined,
    Failed,
    NotFound,
    Pending,
    StatusAnswer,
    SubmitAnswer,
    Succeeded,
    Unknown,
)
from vpay_tasks.core.charge import Flow

__all__ = [
    "Accepted",
    "Capabilities",
    "Declined",
    "Failed",
    "Flow",
    "Inquiry",
    "NotFound",
    "Order",
    "Pending",
    "RailPort",
    "StatusAnswer",
    "SubmitAnswer",
    "Succeeded",
    "Unknown",
]


@dataclass(frozen=True)
class Capabilities:
    """What is refused before any row is written or any call made."""

    currencies: frozenset[str]
    whole_amounts: bool
    """Takes whole numbers of the currency only; a fraction is refused, never rounded."""
    needs_payer: bool
    needs_return_url: bool


@dataclass(frozen=True)
class Order:
    """A submit. The payer's number is for the rail's eyes only."""

    reference: str
    amount: int
    currency: str
    payer: str | None = field(default=None, repr=False)
    return_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Inquiry:
    """A question about a submit: what must be the same in the rail's answer."""

    reference: str
    amount: int
    currency: str
    key_material: Mapping[str, str] = field(default_factory=dict, repr=False)


class RailPort(Protocol):
    """One rail with one set of credentials. Safe to share between threads.

    `deadline` is an instant of `time.monotonic()` that ends everything the call does.
    """

    @property
    def code(self) -> str: ...
    @property
    def flow(self) -> Flow: ...
    @property
    def capabilities(self) -> Capabilities: ...
    def submit(self, order: Order, *, deadline: float) -> SubmitAnswer:
        """Send it. Never raises for what the rail or the network did: that is Unknown."""

    def query_status(self, inquiry: Inquiry, *, deadline: float) -> StatusAnswer:
        """Ask for it. Raises Rail (RailCredentials, RailMismatch) or Configuration for
        whatever is no documented word about this very reference, amount and currency."""

    def parse_callback(self, body: bytes) -> str:
        """The reference that a callback is about; nothing else in it is believed. Raises
        InvalidRequest. No network."""
