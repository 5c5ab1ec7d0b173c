"""What is swept is what is over, all of it but what somebody holds, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.payment_kit import make_charge
from tests.store.tables import Rows, changes, everything
from vpay_tasks.core.charge import AttemptClass, State
from vpay_tasks.store import assertions, attempts, charges, idempotency, inbox, ratelimit
from vpay_tasks.store.db import Connection, Database, connect

DAY = 86_400.0
AGO = "now() - interval '100 days'"
JUST_NOW = "now() - interval '1 min'"


def assertion(database: Database, n: int) -> None:
    insert(database, f"vpay.client_assertions (id, expires_at) VALUES ({key(n)}, {AGO})")


def window(database: Database, n: int) -> None:
    columns = "id, scope, attempts, elapses_at"
    insert(database, f"vpay.rate_limits ({columns}) VALUES ({key(n)}, 's', 1, {AGO})")


def idempotency_key(database: Database, n: int) -> None:
    insert(
        database,
        "vpay.idempotency_keys (merchant_id, key, fingerprint, claim, lease_until, expires_at)"
        f" VALUES ('acme', '{n}', {key(n)}, gen_random_uuid(), {AGO}, {AGO})",
    )


def vendors_event(database: Database, n: int, state: str = "ignored") -> None:
    reason = "'why'" if state == "dead" else "NULL"
    insert(
        database,
        "vpay.inbox_events (vendor, event_id, type, lane, verified_by, digest, body, state,"
        f" reason, ended_at) VALUES ('stripe', '{n}', 't', 'l', 'v', {key(n)}, 'b', '{state}',"
        f" {reason}, {AGO})",
    )


def given_up(database: Database, n: int) -> None:
    vendors_event(database, n, "dead")


def failure(database: Database, _: int) -> None:
    charge = make_charge(database, state=State.FAILED, failure_raw="said the rail")
    change(database, f"charges SET updated_at = {AGO}", charge.id)


def answer(database: Database, _: int) -> None:
    charge = make_charge(database)
    with database.connection() as connection:
        id_ = attempts.open_attempt(connection, charge.id)
        attempts.close_attempt(connection, id_, AttemptClass.UNKNOWN, detail="said the rail")
    change(database, f"provider_requests SET sent_at = {AGO}, answered_at = {AGO}", id_)


def insert(database: Database, text: str) -> None:
    with database.connection() as connection:
        connection.execute(f"INSERT INTO {text}".encode())


def change(database: Database, text: str, id_: object) -> None:
    with database.connection() as connection:
        connection.execute(f"UPDATE vpay.{text} WHERE id = %s".encode(), (id_,))


def key(n: int) -> str:
    return f"decode(lpad('{n}', 64, '0'), 'hex')"


@dataclass(frozen=True)
class Sweep:
    """`make` makes a row that is over; with one of `spared`, it is not for this sweep."""

    table: str
    make: Callable[[Database, int], None]
    call: Callable[[Connection], int]
    spared: tuple[str, ...]
    key: tuple[str, ...] = ("id",)


SWEEPS = {
    "assertions": Sweep(
        "client_assertions",
        assertion,
        assertions.sweep_assertions,
        (f"expires_at = {JUST_NOW}",),
    ),
    "rate limits": Sweep(
        "rate_limits",
        window,
        ratelimit.sweep_rate_limits,
        ("elapses_at = now() + interval '1 min'",),
    ),
    "idempotency keys": Sweep(
        "idempotency_keys",
        idempotency_key,
        idempotency.sweep_idempotency_keys,
        ("expires_at = now() + interval '1 min'",),
        ("merchant_id", "key"),
    ),
    "vendors' events": Sweep(
        "inbox_events",
        vendors_event,
        inbox.sweep_inbox,
        (f"ended_at = {JUST_NOW}", "state = 'dead', reason = 'why'"),
    ),
    "bodies": Sweep(
        "inbox_events",
        given_up,
        lambda own: inbox.sweep_bodies(own, keep=90 * DAY),
        (f"ended_at = {JUST_NOW}", "state = 'ignored'", "body = ''"),
    ),
    "failures' words": Sweep(
        "charges",
        failure,
        lambda own: charges.sweep_words(own, keep=90 * DAY, page=500),
        (f"updated_at = {JUST_NOW}", "failure_raw = NULL"),
    ),
    "answers' words": Sweep(
        "provider_requests",
        answer,
        lambda own: attempts.sweep_words(own, keep=90 * DAY, page=500),
        (f"answered_at = {JUST_NOW}", "detail = NULL"),
    ),
}


def rows_of(sweep: Sweep, connection: Connection) -> Rows:
    return everything(connection, sweep.table, *sweep.key)


def a_row(database: Database, sweep: Sweep, n: int, spared: str = "") -> Any:
    """The key of a new one."""
    with database.connection() as connection:
        before = rows_of(sweep, connection)
        sweep.make(database, n)
        (key_,) = set(rows_of(sweep, connection)) - set(before)
        if spared:
            connection.execute(
                f"UPDATE vpay.{sweep.table} SET {spared} {mine(sweep)}".encode(), key_
            )
    return key_


def mine(sweep: Sweep) -> str:
    return "WHERE " + " AND ".join(f"{column} = %s" for column in sweep.key)


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS)
def test_a_sweep_takes_what_is_over_and_waits_for_nobody(
    database: Database, dsn: str, sweep: Sweep
) -> None:
    for n, spared in enumerate(sweep.spared):
        a_row(database, sweep, n, spared)
    held, *free = (a_row(database, sweep, n) for n in range(10, 13))
    with database.transaction() as tx, connect(dsn, application="sweeper") as own:
        before = rows_of(sweep, own)
        tx.execute(f"SELECT FROM vpay.{sweep.table} {mine(sweep)} FOR UPDATE".encode(), held)
        own.execute("SET lock_timeout = '2 s'")  # or it would wait for ever
        assert sweep.call(own) == 2
        assert set(changes(before, rows_of(sweep, own))) == set(free)
    with database.connection() as connection:
        assert sweep.call(connection) == 1
        assert sweep.call(connection) == 0
        assert set(changes(before, rows_of(sweep, connection))) == {held, *free}
