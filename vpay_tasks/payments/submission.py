"""What confirm and resubmit do alike: wait no longer than their deadline, write down that a
submit is about to be sent, and what the rail made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from vpay_tasks import telemetry
from vpay_tasks.core import kinds
from vpay_tasks.core.answers import Accepted, Declined, SubmitAnswer, Unknown
from vpay_tasks.core.charge import AttemptClass, Charge, Flow, State
from vpay_tasks.errors import Internal, describe
from vpay_tasks.payments import settlement
from vpay_tasks.store import attempts, charges, intents, jobs, patience
from vpay_tasks.store.db import Connection, Database

RECHECK_AFTER_S: Final = 3_600.0
"""From the rail's acceptance of a charge that has failed to the one question about it. Lower:
the payer may still have the prompt; higher: money that is nobody's is found later."""

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


def begin(db: Database, charge: Charge, seen: int, left: Callable[[], float]) -> int | None:
    """Write that a submit is about to be sent; the attempt's id. None: don't send it.

    A compare-and-swap on the charge's state and on the number of its submits: `seen` are those
    that whoever sends has judged by. One more is another's, or its own from a run that died;
    either may have reached the rail. For a confirm, too, though the window keeps recovery off
    its charge: on a machine that was suspended, or beside a database whose clock was set, it
    may find the charge submitted and failed – and would have the payer pay what is over.
    """
    with patient(db, left) as tx:
        # The lock before the rows: a submit that is written meanwhile waits, or is seen.
        if charges.lock(tx, charge.id) is not State.SUBMITTING:
            return None
        if len(attempts.of_charge(tx, charge.id)) != seen:
            return None
        # What the rail did not know before this submit says nothing about it.
        charges.restart_streak(tx, charge.id)
        return attempts.open_attempt(tx, charge.id)


def record(tx: Connection, charge: Charge, flow: Flow, attempt: int, answer: SubmitAnswer) -> None:
    """The answer's class, and what it makes of the charge if nobody was faster."""
    match answer:
        case Accepted(key_material, redirect_url):
            attempts.close_attempt(tx, attempt, AttemptClass.ACCEPTED)
            if charges.submitted(
                tx, charge.id, key_material=key_material, redirect_url=redirect_url
            ):
                advance_intent(tx, charge, flow)
                look_now(tx, charge)
            elif flow is Flow.PUSH and charges.lock(tx, charge.id) is State.FAILED:
                # Whoever failed it did not know. (Of a redirect nobody has the page.)
                recheck(tx, charge)
        case Declined(code, raw):
            attempts.close_attempt(
                tx, attempt, AttemptClass.DECLINED, code=code, detail=settlement.washed(raw)
            )
            # Not for certain: a late decline of a charge that the rail calls pending, or of
            # which it may have another submit, is the poll's to judge.
            settlement.fail_declined(tx, charge)
            look_now(tx, charge)
        case Unknown(error):
            telemetry.report_failure(
                error, "a submit was not answered; recovery decides", charge_id=charge.id
            )
            # The poll keeps its own pace: the rail may have it.
            attempts.close_attempt(tx, attempt, AttemptClass.UNKNOWN, detail=describe(error))


def look_now(tx: Connection, charge: Charge) -> None:
    """A hint after the commit: the first look costs nothing, and a decline ends the job."""
    tx.hints.add(kinds.poll_key(charge.id))


def recheck(tx: Connection, charge: Charge) -> None:
    """Have the rail asked about a failed charge, once its payer can't be deciding any more. The
    poll that failed it may not have settled its job yet: then that one comes back for it."""
    key, adding = kinds.poll_key(charge.id), {"recheck": True}
    payload = {"charge_id": charge.id, **adding}
    job = jobs.enqueue(tx, kinds.POLL_CHARGE, payload, dedupe_key=key, delay=RECHECK_AFTER_S)
    if not job.inserted:
        jobs.pull_forward(tx, key, floor=RECHECK_AFTER_S, wait=RECHECK_AFTER_S, adding=adding)


def advance_intent(tx: Connection, charge: Charge, flow: Flow) -> None:
    """The intent of a charge that this transaction has just moved to `submitted`."""
    if not intents.advance(tx, charge.payment_intent_id, flow.status_once_submitted):
        raise Internal(
            f"charge {charge.id} was submitted, but its intent {charge.payment_intent_id} is"
            " not waiting for a payment method: nothing was written"
        )
