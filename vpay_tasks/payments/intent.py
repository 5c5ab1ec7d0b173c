"""Payment intents, as applications make them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from vpay_tasks.core import money
from vpay_tasks.core.charge import PaymentIntent
from vpay_tasks.core.events import EventType
from vpay_tasks.core.ids import RAW_BYTES, new_id
from vpay_tasks.errors import Conflict, InvalidRequest, NotFound, sanitise
from vpay_tasks.payments import settlement
from vpay_tasks.payments.inputs import check_mode, check_name, checked
from vpay_tasks.store import charges, customers, intents, sql
from vpay_tasks.store.db import Database


def create_intent(
    tx: sql.Connection,
    merchant_id: str,
    amount: int,
    currency: str,
    *,
    customer_id: str | None = None,
    metadata: Mapping[str, str] | None = None,
    livemode: bool = False,
) -> PaymentIntent:
    """Write an intent of `amount` minor units in the caller's transaction (a psycopg 3
    connection). `metadata` is the merchant's own: at most 50 strings, shown in events.
    `livemode` is the settings' `livemode.enabled`: `confirm` refuses an intent of the other
    mode. A customer's payment counts as a use of them. Raises InvalidRequest, and NotFound or
    Conflict for a customer who isn't there or was erased, before anything is written."""
    check_name("merchant_id", merchant_id)
    check_mode(livemode)
    amount, metadata = money.checked_amount(amount, currency), checked(metadata)
    if customer_id is not None:
        _in_use(tx, merchant_id, customer_id, livemode=livemode)
    return intents.insert(
        tx,
        id=new_id("pi", secrets.token_bytes(RAW_BYTES)),
        merchant_id=merchant_id,
        customer_id=customer_id,
        amount=amount,
        currency=currency,
        metadata=metadata,
        livemode=livemode,
    )


def cancel(db: Database, intent_id: str) -> PaymentIntent:
    """Close an intent that nobody is paying. Raises NotFound, or Conflict when it is over or
    has a live charge: only the rail's answer ends that one."""
    check_id(intent_id)
    with db.transaction() as tx:
        if not intents.lock(tx, intent_id):
            raise NotFound(f"no payment intent {sanitise(intent_id, 64)!r}")
        charge = charges.of_intent(tx, intent_id)
        if charge is not None and not charge.state.terminal:
            raise Conflict(f"payment intent {intent_id} has a live charge, {charge.id}")
        intent = intents.cancel(tx, intent_id)
        if intent is None:
            raise Conflict(f"payment intent {intent_id} is over already")
        latest = None if charge is None else charge.id
        settlement.tell(tx, EventType.PAYMENT_INTENT_CANCELED, intent, latest)
        return intent


def _in_use(tx: sql.Connection, merchant_id: str, customer_id: str, *, livemode: bool) -> None:
    """The touch waits for an erasure under way, and then finds nobody; an erasure waits for
    this transaction, and then finds somebody who isn't idle."""
    check_name("customer_id", customer_id)
    customer = customers.read(tx, customer_id)
    if customer is None or customer.merchant_id != merchant_id:
        raise NotFound(f"no customer {sanitise(customer_id, 64)!r}")
    if customer.livemode != livemode:
        mode = "live" if customer.livemode else "test"
        raise InvalidRequest(f"customer_id: customer {customer_id} is of {mode} mode")
    if not customers.touch(tx, customer_id):
        raise Conflict(f"customer {customer_id} was erased")


def check_id(intent_id: object) -> None:
    """Raise InvalidRequest for what can't be an intent's id."""
    check_name("intent_id", intent_id)
