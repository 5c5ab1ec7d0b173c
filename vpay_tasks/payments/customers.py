"""Customers: made, changed, used, and erased."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from vpay_tasks.core.customer import Customer
from vpay_tasks.core.events import EventType, customer_object, redacted
from vpay_tasks.core.ids import RAW_BYTES, new_id
from vpay_tasks.errors import Conflict, NotFound, sanitise
from vpay_tasks.payments import outbox
from vpay_tasks.payments.inputs import check_mode, check_name, check_text, checked
from vpay_tasks.store import customers, events, sql
from vpay_tasks.store.db import Database

IDLE_S: Final = 365 * 86_400.0
"""A year without a payment. A constant and no setting: it is a promise to payers."""
PAGE: Final = 500
"""Event bodies that one transaction redacts: rendering them takes some milliseconds, in which
their rows are held and the fan-out passes them over."""


class Keep:
    """What an update leaves as it is."""


KEEP: Final = Keep()


def create_customer(
    tx: sql.Connection,
    merchant_id: str,
    *,
    name: str | None = None,
    email: str | None = None,
    phone: str | None = None,
    metadata: Mapping[str, str] | None = None,
    livemode: bool = False,
) -> Customer:
    """Write a customer, and `customer.created`, in the caller's transaction; `livemode` is
    the settings' `livemode.enabled`. Raises InvalidRequest before anything is written."""
    check_name("merchant_id", merchant_id)
    check_mode(livemode)
    _check(name, email, phone)
    customer = customers.insert(
        tx,
        id=new_id("cus", secrets.token_bytes(RAW_BYTES)),
        merchant_id=merchant_id,
        name=name,
        email=email,
        phone=phone,
        metadata=checked(metadata),
        livemode=livemode,
    )
    _tell(tx, EventType.CUSTOMER_CREATED, customer)
    return customer


def update_customer(
    tx: sql.Connection,
    merchant_id: str,
    customer_id: str,
    *,
    name: str | Keep | None = KEEP,
    email: str | Keep | None = KEEP,
    phone: str | Keep | None = KEEP,
    metadata: Mapping[str, str | None] | None = None,
) -> Customer:
    """Change what is given; metadata key by key, None takes a key out. Two updates of
    different keys both last: the merge is under the row's lock. Writes `customer.updated` if
    anything changed. Raises NotFound, Conflict (erased), InvalidRequest."""
    _lock(tx, merchant_id, customer_id)
    before = customers.read(tx, customer_id)
    if before is None or before.erased:
        raise Conflict(f"customer {customer_id} was erased")
    wish = {
        "name": before.name if isinstance(name, Keep) else name,
        "email": before.email if isinstance(email, Keep) else email,
        "phone": before.phone if isinstance(phone, Keep) else phone,
    }
    _check(**wish)
    given = dict(metadata or {})
    checked({key: "" if value is None else value for key, value in given.items()})
    merged = {**before.metadata, **given}
    kept = checked({key: value for key, value in merged.items() if value is not None})
    if kept == before.metadata and wish == {key: getattr(before, key) for key in wish}:
        return before
    after = customers.write(tx, customer_id, **wish, metadata=kept)
    if after is None:
        raise Conflict(f"customer {customer_id} was erased")
    _tell(tx, EventType.CUSTOMER_UPDATED, after)
    return after


def touch_customer(tx: sql.Connection, merchant_id: str, customer_id: str) -> None:
    """Note that they were here. Raises NotFound, Conflict (erased)."""
    _lock(tx, merchant_id, customer_id)
    if not customers.touch(tx, customer_id):
        raise Conflict(f"customer {customer_id} was erased")


def erase_customer(db: Database, merchant_id: str, customer_id: str) -> None:
    """Forget a customer: their row, the merchant's words about their payments, and what
    stored events say of them, of which no delivery then sends more. Payments stay. Writes
    `customer.deleted`. Safe to repeat. Raises NotFound."""
    with db.transaction() as tx:
        _lock(tx, merchant_id, customer_id)
        _erase(tx, customer_id)
    while redact_page(db, customer_id):
        pass


def erase_if_idle(db: Database, customer_id: str) -> bool:
    """One customer of the sweep's page, in a transaction of its own; whether they were erased.
    Judged behind the lock that a new payment of theirs takes, too."""
    with db.transaction() as tx:
        if customers.lock(tx, customer_id) is None:
            return False
        return customers.idle(tx, customer_id, idle=IDLE_S) and _erase(tx, customer_id)


def redact_page(db: Database, customer_id: str) -> bool:
    """One more page of what an erased customer left behind; whether there may be another."""
    with db.transaction() as tx:
        return customers.lock(tx, customer_id) is not None and not _redact(tx, customer_id)


def _erase(tx: sql.Connection, customer_id: str) -> bool:
    """Erase a locked customer with the first page of what is stored; False: it was done."""
    erased = customers.erase(tx, customer_id)
    if erased is None:
        return False
    _tell(tx, EventType.CUSTOMER_DELETED, erased)
    _redact(tx, customer_id)
    return True


def _redact(tx: sql.Connection, customer_id: str) -> bool:
    """Redact a page; whether it was the last one. Intents first: a settlement under way holds
    its intent, so its event is there to be seen once that lock is ours."""
    intents_full = customers.forget_intents(tx, customer_id, page=PAGE) == PAGE
    found = events.page_of_customer(tx, customer_id, page=PAGE)
    if found:
        events.redact(tx, {seq: redacted(bytes(body)) for seq, body in found.items()})
    if intents_full or len(found) == PAGE:
        return False
    customers.redaction_done(tx, customer_id)
    customers.delete_unreferenced(tx, customer_id)
    return True


def _lock(tx: sql.Connection, merchant_id: str, customer_id: str) -> None:
    check_name("customer_id", customer_id)
    if customers.lock(tx, customer_id) != merchant_id:
        raise NotFound(f"no customer {sanitise(customer_id, 64)!r}")


def _check(name: str | None, email: str | None, phone: str | None) -> None:
    # As the table's own limits: what it refused would be taken for a bug of ours.
    check_text("name", name, 1, 255)
    check_text("email", email, 3, 320)
    check_text("phone", phone, 3, 32)


def _tell(tx: sql.Connection, type_: EventType, customer: Customer) -> None:
    outbox.append(
        tx,
        type_,
        object_id=customer.id,
        merchant_id=customer.merchant_id,
        customer_id=customer.id,
        livemode=customer.livemode,
        at=customer.updated_at,
        thing=customer_object(customer),
    )
