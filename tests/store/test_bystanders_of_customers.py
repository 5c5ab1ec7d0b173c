"""The same for customers and checkout sessions: one is moved, looked at or held, and all others
stay, whatever state they are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.payment_kit import MERCHANT, make_charge
from tests.store.tables import changes, everything
from vpay_tasks.core.charge import State
from vpay_tasks.core.walk import FRONT, Place
from vpay_tasks.payments import create_customer, create_intent, create_session
from vpay_tasks.store import customers, sessions
from vpay_tasks.store.db import Connection, Database

ADA: dict[str, Any] = {"name": "Ada Byron", "email": "ada@example.com", "phone": "+46733123601"}
YEAR = 365 * 86_400.0
ERASED = "name = NULL, email = NULL, phone = NULL, metadata = '{}', erased_at = now()"
STATES = {
    "used": "last_used_at = now()",
    "idle": "last_used_at = now() - interval '2 years'",
    "erased": f"{ERASED}, last_used_at = now() - interval '2 years'",
    "redacted": f"{ERASED}, redaction_done_at = now(), last_used_at = now() - interval '2 years'",
}


def a_customer(database: Database, state: str = "used", *, pays: bool = False) -> str:
    """One with a name and metadata, and with such a payment if it `pays`."""
    with database.transaction() as tx:
        customer = create_customer(tx, MERCHANT, **ADA, metadata={"a": "b"})
        if pays:
            create_intent(tx, MERCHANT, 1, "EUR", customer_id=customer.id, metadata={"c": "d"})
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(
            f"UPDATE vpay.customers SET {STATES[state]} WHERE id = %s".encode(), (customer.id,)
        )
    return customer.id


def after(database: Database, call: Callable[[Connection], object]) -> dict[str, set[str]]:
    """Which columns of which customers `call` has changed."""
    with database.connection() as connection:
        before = everything(connection, "customers")
        call(connection)
        told = changes(before, everything(connection, "customers"))
    return {id_: set(new) for id_, new in told.items()}


LIVE = ("used", "idle")
PERSON = {"name", "email", "phone", "metadata"}
WRITES: dict[str, tuple[Callable[[Connection, str], Any], tuple[str, ...], set[str]]] = {
    "write": (
        lambda own, id_: customers.write(
            own, id_, name="Eve", email="e@example.com", phone="+46733123602", metadata={}
        ),
        LIVE,
        {*PERSON, "updated_at"},
    ),
    "touch": (customers.touch, LIVE, {"last_used_at"}),
    "erase": (customers.erase, LIVE, {*PERSON, "erased_at", "updated_at"}),
    "redaction_done": (customers.redaction_done, ("erased",), {"redaction_done_at"}),
    "delete_unreferenced": (customers.delete_unreferenced, ("redacted",), {"gone"}),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("write", "states", "columns"), WRITES.values(), ids=WRITES)
def test_a_write_moves_its_own_customer_from_where_it_may(
    database: Database,
    write: Callable[[Connection, str], Any],
    states: tuple[str, ...],
    columns: set[str],
    state: str,
) -> None:
    for other in STATES:
        a_customer(database, other)
    mine = a_customer(database, state)
    a_customer(database, pays=True)
    told = after(database, lambda own: write(own, mine))
    assert told == ({mine: columns} if state in states else {})


def test_what_was_written_about_payments_is_forgotten_of_its_own_customer(
    database: Database,
) -> None:
    other, mine = a_customer(database, pays=True), a_customer(database, "erased", pays=True)
    with database.connection() as connection:
        assert customers.forget_intents(connection, mine, page=9) == 1
        assert customers.forget_intents(connection, mine, page=9) == 0
        found = connection.execute(
            "SELECT customer_id, metadata FROM vpay.payment_intents"
        ).fetchall()
    assert sorted(found) == sorted([(other, {"c": "d"}), (mine, {})])
    kept = a_customer(database, "redacted", pays=True)
    assert after(database, lambda own: customers.delete_unreferenced(own, kept)) == {}


def test_a_customer_is_held_read_and_judged_alone(database: Database) -> None:
    ids = {state: a_customer(database, state) for state in STATES}
    hold = b"SELECT FROM vpay.customers WHERE id = %s FOR UPDATE NOWAIT"
    with database.connection() as connection:
        judged = {state: customers.idle(connection, id_, idle=YEAR) for state, id_ in ids.items()}
        assert judged == {"used": False, "idle": True, "erased": False, "redacted": False}
        for id_ in ids.values():
            found = customers.read(connection, id_)
            assert found is not None
            assert found.id == id_
        with database.transaction() as tx:
            assert customers.lock(tx, ids["used"]) == MERCHANT
            connection.execute(hold, (ids["idle"],))
            with pytest.raises(psycopg.errors.LockNotAvailable):
                connection.execute(hold, (ids["used"],))


@pytest.mark.parametrize("state", ["idle", "erased"])
def test_a_walk_meets_those_of_its_state_once_and_in_order(database: Database, state: str) -> None:
    for other in STATES:
        if other != state:
            a_customer(database, other)
    mine = {a_customer(database, state) for _ in range(3)}

    def page(connection: Connection, place: Place) -> list[Place]:
        if state == "idle":
            return customers.page_idle(connection, place, idle=YEAR, page=2)
        return customers.page_to_redact(connection, place, page=2)

    met: list[Place] = [FRONT]
    with database.connection() as connection:
        for _ in range(3):
            met += page(connection, met[-1])
    assert [place.id for place in met[1:]] == [
        place.id for place in sorted(met[1:], key=lambda place: (place.at, place.id))
    ]
    assert sorted(place.id for place in met[1:]) == sorted(mine)


def a_session(database: Database, status: str = "open", *, due: bool = True) -> tuple[str, str]:
    """A session and its intent."""
    with database.transaction() as tx:
        intent = create_intent(tx, MERCHANT, 1000, "EUR")
        session, _ = create_session(tx, MERCHANT, intent.id, url="https://shop.example/pay")
        tx.execute(
            "UPDATE vpay.checkout_sessions SET status = %s, payment_status = %s,"
            " expires_at = now() + %s * interval '1 h' WHERE id = %s",
            (status, "paid" if status == "complete" else "unpaid", -1 if due else 1, session.id),
        )
    return session.id, intent.id


def sessions_bystanders(database: Database) -> None:
    for status in ("open", "complete", "expired"):
        for due in (True, False):
            a_session(database, status, due=due)


@pytest.mark.parametrize(
    ("status", "due", "expired", "expires", "forced"),
    [
        ("open", True, True, True, True),
        ("open", False, False, False, True),
        ("complete", True, False, False, False),
        ("expired", False, True, False, False),
    ],
)
def test_a_session_is_judged_and_moved_by_its_own_status_and_time(
    database: Database, status: str, due: bool, expired: bool, expires: bool, forced: bool
) -> None:
    sessions_bystanders(database)
    mine, intent = a_session(database, status, due=due)
    calls: tuple[tuple[Callable[[Connection], object], bool, dict[str, Any]], ...] = (
        (lambda own: sessions.expire(own, mine, only_due=True), expires, {"status": "expired"}),
        (lambda own: sessions.expire(own, mine, only_due=False), forced, {"status": "expired"}),
        (
            lambda own: sessions.complete(own, intent),
            status == "open",
            {"status": "complete", "payment_status": "paid"},
        ),
    )
    with database.connection() as connection:
        assert sessions.expired_of_intent(connection, intent) is expired
        found = sessions.read(connection, mine)
        assert found is not None
        assert found.id == mine
        for call, moves, new in calls:
            connection.execute("BEGIN")
            before = everything(connection, "checkout_sessions")
            assert bool(call(connection)) is moves
            told = changes(before, everything(connection, "checkout_sessions"))
            connection.execute("ROLLBACK")
            for row in told.values():
                assert row.pop("updated_at")
            assert told == ({mine: new} if moves else {})


@pytest.mark.parametrize("state", list(State))
def test_a_session_that_is_being_paid_does_not_expire(database: Database, state: State) -> None:
    with database.transaction() as tx:
        intent = create_intent(tx, MERCHANT, 1000, "EUR")
        mine, _ = create_session(tx, MERCHANT, intent.id, url="https://shop.example/pay")
        tx.execute("UPDATE vpay.checkout_sessions SET expires_at = now() - interval '1 h'")
    make_charge(database, intent, state=state)
    make_charge(database)
    paying = state not in (State.SUCCEEDED, State.FAILED)
    with database.connection() as connection:
        due = sessions.page_due(connection, FRONT, page=9)
        assert [place.id for place in due] == ([] if paying else [mine.id])
        assert (sessions.expire(connection, mine.id, only_due=True) is None) is paying


def test_sessions_that_are_due_are_met_once_and_in_order(database: Database) -> None:
    sessions_bystanders(database)
    for _ in range(2):
        a_session(database)
    met: list[Place] = [FRONT]
    with database.connection() as connection:
        for _ in range(3):
            met += sessions.page_due(connection, met[-1], page=2)
        rows = connection.execute(
            "SELECT id FROM vpay.checkout_sessions WHERE status = 'open' AND expires_at < now()"
            " ORDER BY expires_at, id"
        ).fetchall()
    assert [(place.id,) for place in met[1:]] == rows
    assert len(rows) == 3


def test_a_secret_is_its_own_sessions_alone(database: Database) -> None:
    with database.transaction() as tx:
        made = [
            sessions.insert(
                tx,
                id=f"cs_{secret}",
                merchant_id=MERCHANT,
                payment_intent_id=create_intent(tx, MERCHANT, 1000, "EUR").id,
                url="https://shop.example/pay",
                client_secret=secret.encode() * 32,
                livemode=False,
                expires_in=60,
            )
            for secret in ("a", "b")
        ]
        assert None not in made
        assert sessions.by_secret(tx, "cs_b", b"b" * 32)
        assert not sessions.by_secret(tx, "cs_b", b"a" * 32)
