"""Settlement: the one way in which a charge ends, in the caller's transaction.

The charge's swap decides. Who loses it writes nothing: no intent, no second event.
"""

from __future__ import annotations

from typing import Final

from vpay_tasks import telemetry
from vpay_tasks.core.answers import Failed, Succeeded
from vpay_tasks.core.charge import Charge, FailureCode, PaymentIntent, State
from vpay_tasks.core.events import EventType, payment_intent_object
from vpay_tasks.core.recovery import declined_by_all
from vpay_tasks.errors import Internal, Severity, sanitise
from vpay_tasks.payments import outbox, payer
from vpay_tasks.store import attempts, charges, intents, ledger, sessions, sql

TXN_ID_MAX: Final = 128
"""Characters of a rail's own number; the column refuses more."""


def settle(tx: sql.Connection, charge: Charge, outcome: Succeeded | Failed) -> bool:
    """End `charge`, move its intent, append the event, post what came in. False: it was over,
    nothing written.

    Raises Internal when the intent can't follow (canceled, or paid elsewhere): the caller's
    transaction rolls back, a person is paged, and the charge stays live.
    """
    match outcome:
        case Succeeded(txn_id):
            return _succeed(tx, charge, txn_id)
        case Failed(code, raw):
            return _fail(tx, charge, code, raw)


def fail_declined(tx: sql.Connection, charge: Charge) -> bool:
    """Fail a charge whose every submit the rail has declined, by recovery's rule. False:
    nothing was written (see fail_unsent)."""
    # The lock before the rows: a submit that is written meanwhile waits, or is seen.
    state = charges.lock(tx, charge.id)
    declined = declined_by_all(attempts.of_charge(tx, charge.id))
    if state is not State.SUBMITTING or declined is None:
        return False
    return settle(tx, charge, Failed(declined.code, declined.raw))


def fail_unsent(tx: sql.Connection, charge: Charge, outcome: Failed) -> bool:
    """Fail a charge that nobody can pay. False: nothing was written, for it is `submitting`
    no more. Then the rail has spoken about the payment itself, which outweighs what was
    made of its submits."""
    if charges.lock(tx, charge.id) is not State.SUBMITTING:
        return False
    return settle(tx, charge, outcome)


def tell(
    tx: sql.Connection, type_: EventType, intent: PaymentIntent, latest_charge: str | None
) -> None:
    """Append the event of a change that this transaction has just made to `intent`."""
    outbox.append(
        tx,
        type_,
        object_id=intent.id,
        merchant_id=intent.merchant_id,
        customer_id=intent.customer_id,
        livemode=intent.livemode,
        at=intent.updated_at,
        thing=payment_intent_object(intent, latest_charge),
    )


def washed(raw: str) -> str:
    """A rail's own words, fit for a column that people read: rails quote numbers in their
    messages, and bytes that Postgres refuses."""
    return sanitise(payer.without_numbers(raw))


def _succeed(tx: sql.Connection, charge: Charge, txn_id: str | None) -> bool:
    # A number that its column refuses must not keep money from being settled.
    number = sanitise(txn_id or "", TXN_ID_MAX).strip() or None
    if not charges.succeed(tx, charge.id, txn_id=number):
        return False
    intent = intents.succeed(tx, charge.payment_intent_id)
    tell(tx, EventType.PAYMENT_INTENT_SUCCEEDED, _followed(intent, charge), charge.id)
    if not ledger.post_capture(tx, charge.id):
        raise Internal(
            f"charge {charge.id} has just succeeded, and the ledger has a capture of it already:"
            " nothing was written; compare it with the rail"
        )
    sessions.complete(tx, charge.payment_intent_id)
    return True


def _fail(tx: sql.Connection, charge: Charge, code: FailureCode, raw: str) -> bool:
    if not charges.fail(tx, charge.id, code=code, raw=washed(raw) or None):
        return False
    intent = intents.fall_back(tx, charge.payment_intent_id, code)
    tell(tx, EventType.PAYMENT_INTENT_PAYMENT_FAILED, _followed(intent, charge), charge.id)
    if code is FailureCode.PROVIDER_ACCOUNT_BLOCKED:
        telemetry.alert(
            Severity.PAGE,
            "a rail has blocked our account: its payments fail",
            action="settle",
            charge_id=charge.id,
            rail=charge.provider_code,
        )
    return True


def _followed(intent: PaymentIntent | None, charge: Charge) -> PaymentIntent:
    if intent is None:
        raise Internal(
            f"charge {charge.id} has ended, but its intent {charge.payment_intent_id} is over"
            " already: nothing was written; compare both with the rail"
        )
    return intent
