"""Settlement: once, whole, or not at all."""

from __future__ import annotations

import json
import logging
import threading

import pytest

from tests.payment_kit import (
    MERCHANT,
    event_rows,
    events,
    make_charge,
    make_intent,
    read_charge,
    read_intent,
    scalar,
)
from vpay_tasks.core.answers import Failed, Succeeded
from vpay_tasks.core.charge import FailureCode, IntentStatus, State
from vpay_tasks.errors import Internal
from vpay_tasks.payments.settlement import settle
from vpay_tasks.store import intents, ledger
from vpay_tasks.store.db import Database

PAID = Succeeded("t-1")
LATE = Failed(FailureCode.PAYER_TIMEOUT, "EXPIRED")


def entries(database: Database) -> list[tuple[object, ...]]:
    with database.connection() as connection:
        return connection.execute(
            "SELECT charge_id, kind, amount, currency, merchant_id FROM vpay.ledger_entries"
        ).fetchall()


@pytest.mark.parametrize("first", [PAID, LATE])
@pytest.mark.parametrize("second", [PAID, LATE])
def test_a_settlement_run_twice_writes_one_event(
    database: Database, first: Succeeded | Failed, second: Succeeded | Failed
) -> None:
    charge = make_charge(database, state=State.PENDING)
    won = []
    for outcome in (first, second):
        with database.transaction() as tx:
            won.append(settle(tx, charge, outcome))
    assert won == [True, False]
    assert len(events(database)) == 1
    state = State.SUCCEEDED if first is PAID else State.FAILED
    assert read_charge(database, charge.id).state is state


@pytest.mark.parametrize(
    ("number", "kept"),
    [("t" * 129, "t" * 128), ("t\x00\ud800\n", "t"), ("\x00", None), ("", None), (None, None)],
    ids=["long", "odd", "nothing-printable", "empty", "none"],
)
def test_a_rails_odd_number_keeps_no_payment_from_being_settled(
    database: Database, number: str | None, kept: str | None
) -> None:
    charge = make_charge(database, state=State.PENDING)
    with database.transaction() as tx:
        assert settle(tx, charge, Succeeded(number))
    assert read_charge(database, charge.id).provider_txn_id == kept


def test_of_two_settlements_at_once_one_wins(database: Database) -> None:
    charge = make_charge(database, state=State.PENDING)
    barrier = threading.Barrier(4)
    won: list[bool] = []

    def one(outcome: Succeeded | Failed) -> None:
        barrier.wait()
        with database.transaction() as tx:
            won.append(settle(tx, charge, outcome))

    threads = [threading.Thread(target=one, args=(o,)) for o in (PAID, LATE, PAID, LATE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, False, False, True]
    assert len(events(database)) == 1


@pytest.mark.parametrize("outcome", [PAID, LATE])
def test_a_settlement_that_is_rolled_back_never_happened(
    database: Database, outcome: Succeeded | Failed
) -> None:
    charge = make_charge(database, state=State.PENDING)
    with pytest.raises(ZeroDivisionError), database.transaction() as tx:
        assert settle(tx, charge, outcome)
        raise ZeroDivisionError
    assert read_charge(database, charge.id) == charge
    assert read_intent(database, charge.payment_intent_id).amount_received == 0
    assert events(database) == []
    assert entries(database) == []


@pytest.mark.parametrize("outcome", [PAID, LATE])
def test_what_came_in_is_posted_in_the_settlement_and_nothing_else_is(
    database: Database, outcome: Succeeded | Failed
) -> None:
    charge = make_charge(database, state=State.PENDING)
    for _ in range(2):
        with database.transaction() as tx:
            settle(tx, charge, outcome)
    captured = [(charge.id, "capture", 1000, "EUR", MERCHANT)]
    assert entries(database) == (captured if outcome is PAID else [])
    with database.connection() as connection:
        assert all(book.balances for book in ledger.books(connection))


def test_a_charge_that_was_captured_before_it_succeeded_stops_everything(
    database: Database,
) -> None:
    charge = make_charge(database, state=State.PENDING)
    with database.transaction() as tx:
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(
            "INSERT INTO vpay.ledger_entries"
            " (charge_id, merchant_id, currency, amount, kind, debit, credit)"
            " VALUES (%s, 'm_1', 'EUR', 1, 'capture', 'payer_clearing', 'merchant_payable')",
            (charge.id,),
        )
    with pytest.raises(Internal, match="has a capture"), database.transaction() as tx:
        settle(tx, charge, PAID)
    assert read_charge(database, charge.id).state is State.PENDING
    assert events(database) == []


def test_an_event_shows_the_intent_as_it_is_now_and_its_charge(database: Database) -> None:
    charge = make_charge(database, state=State.PENDING)
    with database.transaction() as tx:
        settle(tx, charge, PAID)
    ((type_, object_id, body),) = event_rows(database)
    told = json.loads(body)
    assert list(told) == ["id", "object", "type", "created", "livemode", "merchant", "data"]
    assert told["type"] == type_ == "payment_intent.succeeded"
    assert told["id"] == scalar(database, "SELECT id FROM vpay.events")
    shown = told["data"]["object"]
    assert (shown["id"], shown["latest_charge"]) == (object_id, charge.id)
    assert (shown["status"], shown["amount_received"]) == ("succeeded", 1000)
    assert shown["metadata"] == {"order": "7"}
    # Whole seconds, by the database's clock.
    query = "SELECT floor(EXTRACT(EPOCH FROM updated_at))::bigint FROM vpay.payment_intents"
    assert told["created"] == scalar(database, query)
    assert b"467" not in body
    assert charge.provider_reference_id.encode() not in body


@pytest.mark.parametrize("outcome", [PAID, LATE])
def test_an_intent_that_can_not_follow_stops_everything(
    database: Database, outcome: Succeeded | Failed
) -> None:
    intent = make_intent(database)
    charge = make_charge(database, intent, state=State.PENDING)
    with database.connection() as connection:
        intents.cancel(connection, intent.id)
    with pytest.raises(Internal, match="is over"), database.transaction() as tx:
        settle(tx, charge, outcome)
    assert read_charge(database, charge.id).state is State.PENDING
    assert read_intent(database, intent.id).status is IntentStatus.CANCELED
    assert events(database) == []


def test_a_rail_that_blocked_us_pages(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    charge = make_charge(database, state=State.PENDING)
    with database.transaction() as tx:
        settle(tx, charge, Failed(FailureCode.PROVIDER_ACCOUNT_BLOCKED, "NOT_ALLOWED"))
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


def test_bytes_that_postgres_refuses_settle_all_the_same(database: Database) -> None:
    for raw in ("a\x00b", "\ud800", "x" * 9000, "", "call +46 733-123 601"):
        charge = make_charge(database, state=State.PENDING)
        with database.transaction() as tx:
            assert settle(tx, charge, Failed(FailureCode.PROVIDER_ERROR, raw))
    kept = "SELECT string_agg(coalesce(failure_raw, '-'), '|') FROM vpay.charges"
    words = scalar(database, kept)
    assert "733" not in words
    assert "call +***" in words
