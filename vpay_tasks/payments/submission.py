"""What confirm and resubmit do alike: wait no longer than their deadline, and write down what
a rail made of a submit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from vpay_tasks import telemetry
from vpay_tasks.core import kinds
from vpay_tasks.core.answers import Accepted, Declined, SubmitAnswer, Unknown
from vpay_tasks.core.charge import AttemptClass, Charge, Flow
from vpay_tasks.errors import Internal, describe
from vpay_tasks.payments import settlement
from vpay_tasks.store import attempts, charges, intents, patience
from vpay_tasks.store.db import Connection, Database

BOOKKEEPING_S: Final = 2.0
"""Behind the deadline, for writing down an answer that came at the last moment. Lower: answers
that we have are thrown away. Higher: a confirm is at work on a charge that is older than the
recovery window; then the poll is first, and the confirm's swap loses."""


@contextmanager
def patient(db: Database, left: Callable[[], float]) -> Iterator[Connection]:
    """A unit of work that waits for a connection, and then for any lock, as long as `left`
    says by then."""
    with db.transaction(patience=left()) as tx:
        patience.wait_at_most(tx, left())
        yield tx


def record(tx: Connection, charge: Charge, flow: Flow, attempt: int, answer: SubmitAnswer) -> None:
    """The answer's class, and what it makes of the charge if nobody was faster."""
    match answer:
        case Accepted(key_material, redirect_url):
            attempts.close_attempt(tx, attempt, AttemptClass.ACCEPTED)
            if charges.submitted(
                tx, charge.id, key_material=key_material, redirect_url=redirect_url
            ):
                advance_intent(tx, charge, flow)
        case Declined(code, raw):
            attempts.close_attempt(
                tx, attempt, AttemptClass.DECLINED, code=code, detail=settlement.washed(raw)
            )
            # Not for certain: a late decline of a charge that the rail calls pending, or of
            # which it may have another submit, is the poll's to judge.
            settlement.fail_declined(tx, charge)
        case Unknown(error):
            telemetry.report_failure(
                error, "a submit was not answered; recovery decides", charge_id=charge.id
            )
            attempts.close_attempt(tx, attempt, AttemptClass.UNKNOWN, detail=describe(error))
            return  # the poll keeps its own pace: the rail may have it
    # A hint after the commit: the first look costs nothing, and a decline ends the job.
    tx.hints.add(kinds.poll_key(charge.id))


def advance_intent(tx: Connection, charge: Charge, flow: Flow) -> None:
    """The intent of a charge that this transaction has just moved to `submitted`."""
    if not intents.advance(tx, charge.payment_intent_id, flow.status_once_submitted):
        raise Internal(
            f"charge {charge.id} was submitted, but its intent {charge.payment_intent_id} is"
            " not waiting for a payment method: nothing was written"
        )
