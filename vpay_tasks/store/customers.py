"""Customers: read and written under their own lock, and erased."""

from __future__ import annotations

import json
from collections.abc import Mapping

from vpay_tasks.core.customer import Customer
from vpay_tasks.core.walk import Place
from vpay_tasks.store import sql

SQL = sql.load(__name__)


def insert(
    tx: sql.Connection,
    *,
    id: str,  # noqa: A002 - the column's name
    merchant_id: str,
    name: str | None,
    email: str | None,
    phone: str | None,
    metadata: Mapping[str, str],
    livemode: bool,
) -> Customer:
    (row,) = sql.run(
        tx,
        SQL["insert"],
        {
            "id": id,
            "merchant_id": merchant_id,
            "name": name,
            "email": email,
            "phone": phone,
            "metadata": json.dumps(dict(metadata)),
            "livemode": livemode,
        },
    )
    return Customer(*row)


def lock(tx: sql.Connection, customer_id: str) -> str | None:
    """Hold the customer until the end of the transaction; whose it is, None if there is none."""
    rows = sql.run(tx, SQL["lock"], {"id": customer_id})
    return rows[0][0] if rows else None


def read(connection: sql.Connection, customer_id: str) -> Customer | None:
    rows = sql.run(connection, SQL["read"], {"id": customer_id})
    return Customer(*rows[0]) if rows else None


def write(
    tx: sql.Connection,
    customer_id: str,
    *,
    name: str | None,
    email: str | None,
    phone: str | None,
    metadata: Mapping[str, str],
) -> Customer | None:
    """Every field as given, or None: erased, or gone. Lock it first."""
    params = {
        "id": customer_id,
        "name": name,
        "email": email,
        "phone": phone,
        "metadata": json.dumps(dict(metadata)),
    }
    rows = sql.run(tx, SQL["write"], params)
    return Customer(*rows[0]) if rows else None


def touch(connection: sql.Connection, customer_id: str) -> bool:
    """Note that the customer is in use; False if they were erased, or never were."""
    return bool(sql.run(connection, SQL["touch"], {"id": customer_id}))


def page_idle(connection: sql.Connection, after: Place, *, idle: float, page: int) -> list[Place]:
    """Who was not used for `idle` seconds, the longest first, from behind a place."""
    params = {"after_at": after.at, "after_id": after.id, "idle": idle, "page": page}
    return [Place(*row) for row in sql.run(connection, SQL["page_idle"], params)]


def page_to_redact(connection: sql.Connection, after: Place, *, page: int) -> list[Place]:
    """Who was erased and may still stand in stored events, the first erased first, from behind
    a place."""
    params = {"after_at": after.at, "after_id": after.id, "page": page}
    return [Place(*row) for row in sql.run(connection, SQL["page_to_redact"], params)]


def idle(tx: sql.Connection, customer_id: str, *, idle: float) -> bool:
    """Whether a locked customer is idle still."""
    rows = sql.run(tx, SQL["idle"], {"id": customer_id, "idle": idle})
    return bool(rows and rows[0][0])


def erase(tx: sql.Connection, customer_id: str) -> Customer | None:
    """The customer with nothing left to know them by, or None: they were erased before."""
    rows = sql.run(tx, SQL["erase"], {"id": customer_id})
    return Customer(*rows[0]) if rows else None


def forget_intents(tx: sql.Connection, customer_id: str, *, page: int) -> int:
    """Empty a page of the metadata of their payment intents; how many had any."""
    return len(sql.run(tx, SQL["forget_intents"], {"id": customer_id, "page": page}))


def redaction_done(tx: sql.Connection, customer_id: str) -> bool:
    """Note that no stored event holds anything of them; whether this was news."""
    return bool(sql.run(tx, SQL["redaction_done"], {"id": customer_id}))


def delete_unreferenced(tx: sql.Connection, customer_id: str) -> bool:
    """Delete a redacted customer without payments; whether there was one."""
    return bool(sql.run(tx, SQL["delete_unreferenced"], {"id": customer_id}))
