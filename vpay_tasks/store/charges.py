"""Charges: one attempt to be paid over one rail. Every move is a compare-and-swap."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vpay_tasks.core.charge import Charge, FailureCode, State
from vpay_tasks.store import sql

SQL = sql.load(__name__)

Streak = Literal["longer", "over", "as_it_was"]
"""What an ask does to the count of NotFounds in a row."""


@dataclass(frozen=True)
class Ages:
    """Seconds by the database's clock."""

    charge: float
    not_found: float
    """Since the first NotFound of the running streak; 0 without one."""


def insert(
    tx: sql.Connection,
    *,
    id: str,  # noqa: A002 - the column's name
    payment_intent_id: str,
    provider_code: str,
    provider_reference_id: str,
    return_url: str | None,
    amount: int,
    currency: str,
    payer_ref: str | None,
    payer_masked: str | None,
) -> Charge | None:
    """Write a charge in `submitting`, or None: the intent has one."""
    rows = sql.run(
        tx,
        SQL["insert"],
        {
            "id": id,
            "payment_intent_id": payment_intent_id,
            "provider_code": provider_code,
            "provider_reference_id": provider_reference_id,
            "return_url": return_url,
            "amount": amount,
            "currency": currency,
            "payer_ref": payer_ref,
            "payer_masked": payer_masked,
        },
    )
    return _charge(rows[0]) if rows else None


def read(connection: sql.Connection, charge_id: str) -> Charge | None:
    rows = sql.run(connection, SQL["read"], {"id": charge_id})
    return _charge(rows[0]) if rows else None


def of_intent(connection: sql.Connection, intent_id: str) -> Charge | None:
    """The one charge of an intent, if it has been confirmed."""
    rows = sql.run(connection, SQL["of_intent"], {"payment_intent_id": intent_id})
    return _charge(rows[0]) if rows else None


def find_by_reference(connection: sql.Connection, provider_code: str, reference: str) -> str | None:
    """The id of the charge that a rail knows under `reference`."""
    params = {"provider_code": provider_code, "reference": reference}
    rows = sql.run(connection, SQL["find_by_reference"], params)
    return rows[0][0] if rows else None


def find_by_callback_key(connection: sql.Connection, provider_code: str, key: str) -> str | None:
    """The id of the charge whose key material has this callback_key (rails/port.py)."""
    params = {"provider_code": provider_code, "key": key}
    rows = sql.run(connection, SQL["find_by_callback_key"], params)
    return rows[0][0] if rows else None


def next_ask(
    connection: sql.Connection, charge_id: str, *, floor: float, window: float
) -> tuple[State, float]:
    """The charge's state, and the seconds from now() to when a callback may have the rail
    asked about it: `floor` after the last ask, and not while it is `submitting` and younger
    than `window`."""
    params = {"id": charge_id, "floor": floor, "window": window}
    ((state, wait),) = sql.run(connection, SQL["next_ask"], params)
    return State(state), wait


def asking(connection: sql.Connection, charge_id: str) -> None:
    """Note that the rail is about to be asked."""
    sql.run(connection, SQL["asking"], {"id": charge_id})


def ages(connection: sql.Connection, charge_id: str) -> Ages:
    ((charge, not_found),) = sql.run(connection, SQL["ages"], {"id": charge_id})
    return Ages(charge, not_found)


def lock(tx: sql.Connection, charge_id: str) -> State | None:
    """Hold the charge until the transaction ends; the state that it is in."""
    rows = sql.run(tx, SQL["lock"], {"id": charge_id})
    return State(rows[0][0]) if rows else None


def submitted(
    tx: sql.Connection,
    charge_id: str,
    *,
    key_material: Mapping[str, str],
    redirect_url: str | None,
) -> bool:
    """`submitting` → `submitted`; whether it won."""
    return bool(
        sql.run(
            tx,
            SQL["submitted"],
            {
                "id": charge_id,
                "key_material": json.dumps(dict(key_material)),
                "redirect_url": redirect_url,
            },
        )
    )


def succeed(tx: sql.Connection, charge_id: str, *, txn_id: str | None) -> bool:
    """A live state → `succeeded`; whether it won."""
    return bool(sql.run(tx, SQL["succeed"], {"id": charge_id, "txn_id": txn_id}))


def fail(tx: sql.Connection, charge_id: str, *, code: FailureCode, raw: str | None) -> bool:
    """A live state → `failed`; whether it won."""
    params = {"id": charge_id, "code": code.value, "raw": raw}
    return bool(sql.run(tx, SQL["fail"], params))


def asked(
    connection: sql.Connection,
    charge_id: str,
    *,
    from_state: State,
    to_state: State,
    streak: Streak,
    seen: int,
) -> bool:
    """Count one ask; move the state if it is still `from_state`, lengthen the streak if it is
    still `seen`. False: the charge is over."""
    return bool(
        sql.run(
            connection,
            SQL["asked"],
            {
                "id": charge_id,
                "from_state": from_state.value,
                "to_state": to_state.value,
                "streak": streak,
                "seen": seen,
            },
        )
    )


def restart_streak(tx: sql.Connection, charge_id: str) -> None:
    """Forget the NotFounds so far: another submit is about to be sent."""
    sql.run(tx, SQL["restart_streak"], {"id": charge_id})


def contradicted(connection: sql.Connection, charge_id: str) -> bool:
    """Note that the rail says the opposite of what was settled; True the first time."""
    return bool(sql.run(connection, SQL["contradicted"], {"id": charge_id}))


def sweep_words(connection: sql.Connection, *, keep: float, page: int) -> int:
    """Take a rail's words away from a page of charges that failed more than `keep` seconds
    ago; how many."""
    return len(sql.run(connection, SQL["sweep_words"], {"keep": keep, "page": page}))


def _charge(row: sql.Row) -> Charge:
    (
        id_,
        payment_intent_id,
        provider_code,
        provider_reference_id,
        provider_ref_extra,
        redirect_url,
        return_url,
        state,
        amount,
        currency,
        payer_ref,
        payer_masked,
        failure_code,
        provider_txn_id,
        polls,
        not_found_streak,
    ) = row
    return Charge(
        id=id_,
        payment_intent_id=payment_intent_id,
        provider_code=provider_code,
        provider_reference_id=provider_reference_id,
        provider_ref_extra=provider_ref_extra,
        redirect_url=redirect_url,
        return_url=return_url,
        state=State(state),
        amount=amount,
        currency=currency,
        payer_ref=payer_ref,
        payer_masked=payer_masked,
        failure_code=None if failure_code is None else FailureCode(failure_code),
        provider_txn_id=provider_txn_id,
        polls=polls,
        not_found_streak=not_found_streak,
    )
