"""A submit that the rail does not have, sent again: the same reference, one call per job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vpay_tasks import telemetry
from vpay_tasks.core.answers import SubmitAnswer
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.errors import Internal, Severity
from vpay_tasks.payments import payer, submission
from vpay_tasks.payments.poll import rail_of
from vpay_tasks.payments.submission import BOOKKEEPING_S, patient
from vpay_tasks.rails.port import Order, RailPort
from vpay_tasks.store import charges
from vpay_tasks.store.db import Database


@dataclass(frozen=True)
class Submit:
    """What is to be sent, and over what."""

    charge: Charge
    rail: RailPort
    order: Order = field(repr=False)


def read(db: Database, rails: Mapping[str, RailPort], charge_id: str) -> Submit | None:
    """What the charge's confirm sent, or meant to. None: the charge has gone on.

    Raises Configuration without its rail, Internal when its payer can't be read. All of that
    comes before the attempt's row: a row without a call behind it costs a streak of polls.
    """
    with db.connection() as connection:
        charge = charges.read(connection, charge_id)
    if charge is None:
        raise Internal(f"a resubmit of charge {charge_id!r}, which does not exist")
    if charge.state is not State.SUBMITTING:
        return None
    sealed = charge.payer_ref
    order = Order(
        reference=charge.provider_reference_id,
        amount=charge.amount,
        currency=charge.currency,
        payer=None if sealed is None else payer.ring_of(db.keys).open(sealed),
        return_url=charge.return_url,
    )
    return Submit(charge, rail_of(charge, rails), order)


def send(submit: Submit, *, seen: int, deadline: float) -> SubmitAnswer:
    """The call. No transaction is open."""
    telemetry.say(
        Severity.WARN,
        "a submit is sent again under its reference",
        action="resubmit",
        charge_id=submit.charge.id,
        submits=seen + 1,
    )
    if seen > 0:
        telemetry.count("exposure")
    return submit.rail.submit(submit.order, deadline=deadline)


def write(db: Database, submit: Submit, attempt: int, answer: SubmitAnswer) -> None:
    """What the rail made of it, as a confirm writes it down."""
    with patient(db, lambda: BOOKKEEPING_S) as tx:
        submission.record(tx, submit.charge, submit.rail.flow, attempt, answer)
