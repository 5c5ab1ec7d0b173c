"""Rows of payments for tests, and a rail's adapter on a stub."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.fernet import Fernet
from psycopg import sql
from pydantic import SecretStr

from vpay_sandbox.momo import Credentials
from vpay_tasks.config import KeysTable, WindowsTable
from vpay_tasks.core import kinds
from vpay_tasks.core.charge import Attempt, AttemptClass, Charge, FailureCode, PaymentIntent, State
from vpay_tasks.payments import create_intent
from vpay_tasks.payments.payer import ring_of
from vpay_tasks.rails.mtn_momo import MtnMomo, MtnMomoTable
from vpay_tasks.store import attempts, charges, intents, jobs
from vpay_tasks.store.db import Database

KEYS = KeysTable(payer_ref=(SecretStr(Fernet.generate_key().decode()),))
RING = ring_of(KEYS)
APPROVED = "46733123601"
MERCHANT = "m_1"


def momo(url: str, *, windows: WindowsTable | None = None, **changes: Any) -> MtnMomo:
    """The MTN adapter on a stub rail at `url`."""
    keys = Credentials()
    table: dict[str, Any] = {
        "base_url": url,
        "api_user": keys.api_user,
        "api_key": SecretStr(keys.api_key),
        "subscription_key": SecretStr(keys.subscription_key),
        **changes,
    }
    return MtnMomo(MtnMomoTable(**table), windows or WindowsTable())


@contextmanager
def opened(url: str, **more: Any) -> Iterator[Database]:
    """A Database as an application has one: with keys, and whatever else it is given."""
    database = Database(url, application="tests", **{"keys": KEYS, **more})
    yield database
    database.close()


def make_intent(database: Database, amount: int = 1000, currency: str = "EUR") -> PaymentIntent:
    with database.transaction() as tx:
        return create_intent(tx, MERCHANT, amount, currency, metadata={"order": "7"})


def make_charge(
    database: Database,
    intent: PaymentIntent | None = None,
    *,
    reference: str | None = None,
    state: State = State.SUBMITTING,
    age: float = 0.0,
    with_job: bool = True,
    **columns: Any,
) -> Charge:
    """A charge with its poll job, `age` seconds old, in `state`."""
    intent = intent or make_intent(database)
    charge_id = intent.id.replace("pi_", "ch_")
    with database.transaction() as tx:
        charge = charges.insert(
            tx,
            id=charge_id,
            payment_intent_id=intent.id,
            provider_code="mtn_momo",
            provider_reference_id=reference or str(uuid.uuid4()),
            return_url=None,
            amount=intent.amount,
            currency=intent.currency,
            payer_ref=RING.seal(APPROVED),
            payer_masked="467******01",
        )
        assert charge is not None
        if with_job:
            jobs.enqueue(
                tx,
                kinds.POLL_CHARGE,
                {"charge_id": charge_id},
                dedupe_key=kinds.poll_key(charge_id),
            )
        columns = {"state": state.value, **columns}
        if state is State.FAILED:
            columns.setdefault("failure_code", FailureCode.PAYER_TIMEOUT.value)
        force(tx, charge_id, age=age, **columns)
    return read_charge(database, charge_id)


def force(
    tx: Any,
    charge_id: str,
    *,
    age: float | None = None,
    not_found_for: float | None = None,
    **columns: Any,
) -> None:
    """Write columns behind the guards' back; `age` moves created_at into the past, and
    `not_found_for` the beginning of the streak of NotFounds; both in seconds."""
    tx.execute("SET LOCAL session_replication_role = replica")
    values = [
        sql.SQL("{} = {}").format(sql.Identifier(k), sql.Literal(v)) for k, v in columns.items()
    ]
    values += [
        sql.SQL("{} = clock_timestamp() - make_interval(secs => {})").format(
            sql.Identifier(column), seconds
        )
        for column, seconds in (("created_at", age), ("first_not_found_at", not_found_for))
        if seconds is not None
    ]
    change = sql.SQL("UPDATE vpay.charges SET {} WHERE id = {}")
    tx.execute(change.format(sql.SQL(", ").join(values), charge_id))
    tx.execute("SET LOCAL session_replication_role = origin")


def make_attempt(
    database: Database, charge: Charge, answer: AttemptClass | None, code: FailureCode | None = None
) -> None:
    with database.connection() as connection:
        attempt = attempts.open_attempt(connection, charge.id)
        if answer is not None:
            assert attempts.close_attempt(connection, attempt, answer, code=code)


def read_charge(database: Database, charge_id: str) -> Charge:
    with database.connection() as connection:
        charge = charges.read(connection, charge_id)
    assert charge is not None
    return charge


def read_intent(database: Database, intent_id: str) -> PaymentIntent:
    with database.connection() as connection:
        intent = intents.read(connection, intent_id)
    assert intent is not None
    return intent


def read_attempts(database: Database, charge: Charge) -> list[Attempt]:
    with database.connection() as connection:
        return attempts.of_charge(connection, charge.id)


def events(database: Database) -> list[tuple[str, str]]:
    """(type, object id) of every event."""
    return [(type_, object_id) for type_, object_id, _ in event_rows(database)]


def event_rows(database: Database) -> list[tuple[str, str, bytes]]:
    with database.connection() as connection:
        rows = connection.execute("SELECT type, object_id, body FROM vpay.events ORDER BY seq")
        return [(row[0], row[1], bytes(row[2])) for row in rows]


def scalar(database: Database, query: str, *params: object) -> Any:
    """The first column of the one row of a query."""
    with database.connection() as connection:
        row = connection.execute(query.encode(), params).fetchone()
    assert row is not None
    return row[0]
