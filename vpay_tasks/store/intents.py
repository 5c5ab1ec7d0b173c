"""Payment intents: what a merchant wants to be paid."""

from __future__ import annotations

import json
from collections.abc import Mapping

from vpay_tasks.core.charge import FailureCode, IntentStatus, PaymentIntent
from vpay_tasks.store import sql

SQL = sql.load(__name__)


def insert(
    tx: sql.Connection,
    *,
    id: str,  # noqa: A002 - the column's name
    merchant_id: str,
    customer_id: str | None,
    amount: int,
    currency: str,
    metadata: Mapping[str, str],
    livemode: bool,
) -> PaymentIntent:
    """Write an intent in `requires_payment_method`."""
    (row,) = sql.run(
        tx,
        SQL["insert"],
        {
            "id": id,
            "merchant_id": merchant_id,
            "customer_id": customer_id,
            "amount": amount,
            "currency": currency,
            "metadata": json.dumps(dict(metadata)),
            "livemode": livemode,
        },
    )
    return _intent(row)


def lock(tx: sql.Connection, intent_id: str) -> bool:
    """Hold the intent until the end of the transaction; False if there is none."""
    return bool(sql.run(tx, SQL["lock"], {"id": intent_id}))


def read(connection: sql.Connection, intent_id: str) -> PaymentIntent | None:
    rows = sql.run(connection, SQL["read"], {"id": intent_id})
    return _intent(rows[0]) if rows else None


def advance(tx: sql.Connection, intent_id: str, status: IntentStatus) -> bool:
    """`requires_payment_method` → `status`; whether it won."""
    return bool(sql.run(tx, SQL["advance"], {"id": intent_id, "status": status.value}))


def succeed(tx: sql.Connection, intent_id: str) -> PaymentIntent | None:
    """The intent as paid, or None: it had been canceled, or paid, before."""
    rows = sql.run(tx, SQL["succeed"], {"id": intent_id})
    return _intent(rows[0]) if rows else None


def fall_back(tx: sql.Connection, intent_id: str, error: FailureCode) -> PaymentIntent | None:
    """The intent open again after its charge failed, or None: it was over."""
    rows = sql.run(tx, SQL["fall_back"], {"id": intent_id, "error": error.value})
    return _intent(rows[0]) if rows else None


def cancel(tx: sql.Connection, intent_id: str) -> PaymentIntent | None:
    """The intent as canceled, or None: it is not waiting for a payment method."""
    rows = sql.run(tx, SQL["cancel"], {"id": intent_id})
    return _intent(rows[0]) if rows else None


def _intent(row: sql.Row) -> PaymentIntent:
    (
        id_,
        merchant_id,
        customer_id,
        amount,
        currency,
        status,
        amount_received,
        amount_refunded,
        error,
        metadata,
        livemode,
        created_at,
        updated_at,
    ) = row
    return PaymentIntent(
        id=id_,
        merchant_id=merchant_id,
        customer_id=customer_id,
        amount=amount,
        currency=currency,
        status=IntentStatus(status),
        amount_received=amount_received,
        amount_refunded=amount_refunded,
        last_payment_error=None if error is None else FailureCode(error),
        metadata=metadata,
        livemode=livemode,
        created_at=created_at,
        updated_at=updated_at,
    )
