"""What a rail may answer, as values: the tables of verdict and recovery are over these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vpay_tasks.core.charge import FailureCode
from vpay_tasks.errors import VpayError


@dataclass(frozen=True)
class Accepted:
    """The rail has it (a duplicate of our own reference too)."""

    key_material: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the rail wants to see again when it is asked; merged into provider_ref_extra."""
    redirect_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Declined:
    """The rail refused it in documented words: it does not have it."""

    code: FailureCode
    raw: str = field(repr=False)


@dataclass(frozen=True)
class Unknown:
    """The rail may have it: no answer, or none that its documents explain. `error` is what
    went wrong, classified, for whoever reports it."""

    error: VpayError


SubmitAnswer = Accepted | Declined | Unknown


@dataclass(frozen=True)
class Pending:
    """The payer has not decided."""


@dataclass(frozen=True)
class Succeeded:
    """Paid: a documented terminal word, for our reference, amount and currency."""

    txn_id: str | None
    """The rail's own number; None when it named none. Money has moved all the same."""


@dataclass(frozen=True)
class Failed:
    """Not paid, and never will be: a documented terminal word, for our reference."""

    code: FailureCode
    raw: str = field(repr=False)


@dataclass(frozen=True)
class NotFound:
    """The rail says that it doesn't know the reference. It may be late."""


StatusAnswer = Pending | Succeeded | Failed | NotFound
