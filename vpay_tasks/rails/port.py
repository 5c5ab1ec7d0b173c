"""What every payment rail looks like from above. Nothing outside an adapter names a rail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

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
    "CALLBACK_KEY",
    "Accepted",
    "ByKey",
    "ByReference",
    "Capabilities",
    "Declined",
    "Failed",
    "Flow",
    "Inquiry",
    "Named",
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


CALLBACK_KEY: Final = "callback_key"
"""The name under which an acceptance's key material keeps what its callbacks are found by, if
they name no reference. The database has an index on it. If it comes from a secret, keep the
secret's fingerprint (token.py): then no row and no index holds it, and how long a comparison
takes tells nothing about it."""


@dataclass(frozen=True)
class ByReference:
    """A callback about the submit with this reference."""

    reference: str


@dataclass(frozen=True)
class ByKey:
    """A callback about the submit whose acceptance came with this CALLBACK_KEY."""

    key: str = field(repr=False)


Named = ByReference | ByKey


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

    def parse_callback(self, body: bytes) -> Named:
        """What a callback is about; nothing else in it is believed. Raises InvalidRequest,
        and quotes nothing of the body. No network."""
