"""The same for what is asked, held and posted of one payment, beside another merchant's."""

from __future__ import annotations

import psycopg
import pytest

from tests.payment_kit import MERCHANT, make_charge
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.payments import create_intent
from vpay_tasks.store import attempts, charges, intents, ledger
from vpay_tasks.store.db import Database

HOLD = b"SELECT FROM vpay.payment_intents WHERE id = %s FOR UPDATE NOWAIT"


def two(database: Database, state: State = State.SUBMITTED) -> tuple[Charge, Charge]:
    """A charge of another merchant, and ours."""
    with database.transaction() as tx:
        other = create_intent(tx, "other", 500, "EUR")
    return make_charge(database, other), make_charge(database, state=state)


def test_when_a_rail_may_be_asked_again_is_up_to_the_charge_and_its_state(
    database: Database,
) -> None:
    submitting, mine = two(database)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.charges SET last_asked_at = now()")
        state, wait = charges.next_ask(connection, mine.id, floor=10, window=1e6)
        assert (state, 0 < wait <= 10) == (State.SUBMITTED, True)
        state, wait = charges.next_ask(connection, submitting.id, floor=10, window=1e6)
        assert (state, 10 < wait <= 1e6) == (State.SUBMITTING, True)


def test_whoever_holds_an_intent_holds_no_other(database: Database) -> None:
    other, mine = two(database)
    with database.transaction() as tx, database.connection() as connection:
        assert intents.lock(tx, mine.payment_intent_id)
        connection.execute(HOLD, (other.payment_intent_id,))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute(HOLD, (mine.payment_intent_id,))


def test_what_a_charge_brought_in_is_posted_for_it_alone_and_to_its_merchant(
    database: Database,
) -> None:
    both = two(database)
    with database.connection() as connection:
        for charge in both:
            assert charges.succeed(connection, charge.id, txn_id="t")
        assert ledger.post_capture(connection, both[1].id)
        entries = connection.execute(
            "SELECT charge_id, merchant_id, amount FROM vpay.ledger_entries"
        ).fetchall()
    assert entries == [(both[1].id, MERCHANT, both[1].amount)]


def test_a_charges_submits_are_its_own(database: Database) -> None:
    other, mine = two(database)
    with database.connection() as connection:
        attempts.open_attempt(connection, other.id)
        submit = attempts.open_attempt(connection, mine.id)
        assert [found.id for found in attempts.of_charge(connection, mine.id)] == [submit]
