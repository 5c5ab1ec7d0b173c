"""The ledger: what a capture posts, what the database refuses, and sums that must agree."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from tests.payment_kit import MERCHANT, make_charge, make_intent, scalar
from tests.store.test_payment_rows import LIVE
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.errors import Internal, InvalidRequest
from vpay_tasks.store import charges, ledger
from vpay_tasks.store.db import Database
from vpay_tasks.store.ledger import Book


def succeeded(database: Database, amount: int = 1000, currency: str = "EUR") -> Charge:
    """A charge that has succeeded, and nothing posted."""
    charge = make_charge(database, make_intent(database, amount, currency), state=State.PENDING)
    with database.connection() as connection:
        assert charges.succeed(connection, charge.id, txn_id="t")
    return charge


def posted(database: Database, charge: Charge) -> list[Any]:
    with database.connection() as connection:
        return connection.execute(
            "SELECT kind, debit, credit, amount, currency, merchant_id FROM vpay.ledger_entries"
            " WHERE charge_id = %s ORDER BY id",
            (charge.id,),
        ).fetchall()


def post(database: Database, charge: Charge, fee: int = 0) -> bool:
    with database.transaction() as tx:
        return ledger.post_capture(tx, charge.id, fee=fee)


def test_a_capture_is_owed_to_its_merchant_and_posted_once(database: Database) -> None:
    charge = succeeded(database)
    assert [post(database, charge), post(database, charge)] == [True, False]
    assert posted(database, charge) == [
        ("capture", "payer_clearing", "merchant_payable", 1000, "EUR", MERCHANT)
    ]


def test_a_fee_is_taken_out_of_what_is_owed(database: Database) -> None:
    charge = succeeded(database)
    assert post(database, charge, fee=30)
    assert not post(database, charge, fee=30)
    assert posted(database, charge) == [
        ("capture", "payer_clearing", "merchant_payable", 970, "EUR", MERCHANT),
        ("fee", "payer_clearing", "platform_fee_revenue", 30, "EUR", MERCHANT),
    ]
    with database.connection() as connection:
        (book,) = ledger.books(connection)
    assert book == Book("EUR", 1, 1000, 1, 1000, 970, 30)
    assert book.balances


@pytest.mark.parametrize("fee", [1000, 1001])
def test_a_fee_that_leaves_the_merchant_nothing_is_not_posted(database: Database, fee: int) -> None:
    charge = succeeded(database)
    assert not post(database, charge, fee=fee)
    assert posted(database, charge) == []


def test_a_fee_below_nothing_is_refused(database: Database) -> None:
    charge = succeeded(database)
    with pytest.raises(InvalidRequest, match="fee"):
        post(database, charge, fee=-1)
    assert posted(database, charge) == []


def test_nothing_is_posted_for_a_charge_that_has_not_succeeded(database: Database) -> None:
    for state in (*LIVE, State.FAILED):
        charge = make_charge(database, state=state)
        assert not post(database, charge)
        assert posted(database, charge) == []


def test_of_two_that_post_one_capture_at_once_one_wins(database: Database) -> None:
    charge = succeeded(database)
    barrier = threading.Barrier(4)
    won: list[bool] = []

    def one() -> None:
        barrier.wait()
        won.append(post(database, charge))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, False, False, True]
    assert len(posted(database, charge)) == 1


ENTRY = {
    "amount": "1000",
    "currency": "'EUR'",
    "kind": "'capture'",
    "debit": "'payer_clearing'",
    "credit": "'merchant_payable'",
    "merchant_id": f"'{MERCHANT}'",
}


def refused(database: Database, charge: Charge, **changes: str) -> bool:
    """Whether the database refuses an entry for `charge` that somebody writes by hand."""
    entry = {**ENTRY, "charge_id": f"'{charge.id}'", **changes}
    names, values = ", ".join(entry), ", ".join(entry.values())
    with database.connection() as connection:
        try:
            query = f"INSERT INTO vpay.ledger_entries ({names}) VALUES ({values})"
            connection.execute(query.encode())
        except (psycopg.errors.IntegrityError, psycopg.errors.CheckViolation):
            return True
        return False


@pytest.mark.parametrize(
    "changes",
    [
        {"amount": "0"},
        {"amount": "-1"},
        {"amount": "1001"},
        {"currency": "'XAF'"},
        {"currency": "'eur'"},
        {"merchant_id": "'m_2'"},
        {"merchant_id": "NULL"},
        {"kind": "'refund'"},
        {"debit": "'merchant_payable'"},
        {"credit": "'payer_clearing'"},
        {"debit": "'merchant_payable'", "credit": "'payer_clearing'"},
        {"credit": "'platform_fee_revenue'"},
        {"kind": "'fee'"},
        {"charge_id": "'ch_nobody'"},
    ],
    ids=str,
)
def test_the_database_refuses_an_entry_that_makes_no_sense(
    database: Database, changes: dict[str, str]
) -> None:
    charge = succeeded(database)
    assert refused(database, charge, **changes)
    assert not refused(database, charge)


def test_the_database_refuses_an_entry_of_a_charge_that_brought_nothing_in(
    database: Database,
) -> None:
    for state in (*LIVE, State.FAILED):
        assert refused(database, make_charge(database, state=state))


def test_the_database_refuses_to_post_more_than_came_in(database: Database) -> None:
    charge = succeeded(database)
    fee = {"kind": "'fee'", "credit": "'platform_fee_revenue'"}
    assert post(database, charge, fee=30)
    other = succeeded(database)
    assert post(database, other)
    assert refused(database, charge, **fee, amount="1")
    assert refused(database, other, **fee, amount="1")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE vpay.ledger_entries SET amount = 1",
        "UPDATE vpay.ledger_entries SET posted_at = now()",
        "DELETE FROM vpay.ledger_entries",
        "TRUNCATE vpay.ledger_entries",
    ],
)
def test_what_is_posted_stays_as_it_is(database: Database, change: str) -> None:
    charge = succeeded(database)
    post(database, charge)
    before = posted(database, charge)
    refusal = pytest.raises(psycopg.errors.CheckViolation, match="only appended to")
    with database.connection() as connection, refusal:
        connection.execute(change.encode())
    assert posted(database, charge) == before


def test_books_are_kept_by_currency(database: Database) -> None:
    for amount, currency in ((1000, "EUR"), (500, "EUR"), (2000, "XAF")):
        assert post(database, succeeded(database, amount, currency))
    make_charge(database, state=State.PENDING)
    make_charge(database, state=State.FAILED)
    with database.connection() as connection:
        assert ledger.books(connection) == [
            Book("EUR", 2, 1500, 2, 1500, 1500, 0),
            Book("XAF", 1, 2000, 1, 2000, 2000, 0),
        ]


def test_what_was_not_posted_shows_and_the_remedy_posts_it_once(database: Database) -> None:
    assert post(database, succeeded(database), fee=30)
    missing = succeeded(database, 500)
    other = succeeded(database, 700, "XAF")
    with database.connection() as connection:
        eur, xaf = ledger.books(connection)
        assert (eur.lacks_captures, xaf.lacks_captures) == (True, True)
        for number in (2, 0):
            found = connection.execute("SELECT vpay.post_missing_captures()").fetchone()
            assert found == (number,)
        assert all(book.balances for book in ledger.books(connection))
    assert posted(database, missing)[0][3:] == (500, "EUR", MERCHANT)
    assert posted(database, other)[0][3:] == (700, "XAF", MERCHANT)
    # Dated as the money came, not as it was noticed.
    assert scalar(
        database,
        "SELECT bool_and(posted_at = updated_at) FROM vpay.ledger_entries"
        " JOIN vpay.charges ON charges.id = charge_id WHERE kind = 'capture' AND charge_id <> %s",
        scalar(database, "SELECT charge_id FROM vpay.ledger_entries WHERE kind = 'fee'"),
    )


def test_a_statement_that_the_database_refuses_is_a_bug_that_pages(database: Database) -> None:
    charge = succeeded(database)
    with database.connection() as connection:
        connection.execute("ALTER TABLE vpay.ledger_entries ADD CHECK (amount < 1000)")
    with pytest.raises(Internal):
        post(database, charge)
