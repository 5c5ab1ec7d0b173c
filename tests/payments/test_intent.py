"""Intents: what can't be made, confirmed or canceled, and that nothing is written then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.payment_kit import APPROVED, MERCHANT, event_rows, events, make_intent, opened, scalar
from vpay_sandbox.httpd import Hangup
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import KeysTable
from vpay_tasks.core.charge import IntentStatus, PaymentIntent
from vpay_tasks.errors import Configuration, Conflict, InvalidRequest, NotFound
from vpay_tasks.payments import Confirmation, cancel, confirm, create_intent
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.store.db import Database

SUBMITS = "*/requesttopay"


def confirmed(
    database: Database, intent: PaymentIntent, rail: MtnMomo, **more: Any
) -> Confirmation:
    return confirm(database, intent.id, rail=rail, **{"payer": APPROVED, **more})


BAD: list[dict[str, Any]] = [
    {"amount": 0},
    {"amount": -1},
    {"amount": 10.0},
    {"amount": True},
    {"amount": 2**53},
    {"currency": "eur"},
    {"currency": "XXX"},
    {"merchant_id": ""},
    {"merchant_id": "m" * 65},
    {"merchant_id": "m\x00"},
    {"customer_id": ""},
    {"metadata": {"": "v"}},
    {"metadata": {"k" * 41: "v"}},
    {"metadata": {"k": "v" * 501}},
    {"metadata": {"k": 1}},
    {"metadata": {"k": "a\x00b"}},
    {"metadata": {"k": "\ud800"}},
    {"metadata": {str(n): "v" for n in range(51)}},
    {"merchant_id": 5},
    {"merchant_id": None},
    {"merchant_id": b"m"},
    {"customer_id": 5},
    {"customer_id": ["c"]},
    {"amount": "1000"},
    {"amount": None},
    {"currency": None},
    {"currency": 978},
    {"currency": ["EUR"]},
    {"currency": {"EUR": 1}},
    {"metadata": []},
    {"metadata": [1]},
    {"metadata": "kv"},
    {"metadata": 0},
    {"metadata": {1: "v"}},
    {"metadata": {"k": None}},
    {"livemode": 1},
    {"livemode": None},
]


def test_an_intent_that_can_not_be_paid_or_told_is_refused(database: Database) -> None:
    good = {"merchant_id": MERCHANT, "amount": 1000, "currency": "EUR"}
    for change in BAD:
        with database.transaction() as tx, pytest.raises(InvalidRequest):
            create_intent(tx, **{**good, **change})
    assert scalar(database, "SELECT count(*) FROM vpay.payment_intents") == 0


@pytest.mark.parametrize("live", [True, False])
def test_an_intent_is_confirmed_in_its_own_mode_only(
    dsn: str, stub: StubRail, rail: MtnMomo, live: bool
) -> None:
    with opened(dsn, livemode=live) as database:
        with database.transaction() as tx:
            theirs = create_intent(tx, MERCHANT, 1000, "EUR", livemode=not live)
            ours = create_intent(tx, MERCHANT, 1000, "EUR", livemode=live)
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="livemode=settings"):
                confirmed(database, theirs, rail)
        assert stub.requests(SUBMITS) == []
        assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0
        assert confirmed(database, ours, rail).charge.payment_intent_id == ours.id


def test_an_event_says_the_mode_of_its_intent(dsn: str) -> None:
    with opened(dsn, livemode=True) as database:
        with database.transaction() as tx:
            intent = create_intent(tx, MERCHANT, 1000, "EUR", livemode=True)
        cancel(database, intent.id)
        ((_, _, body),) = event_rows(database)
        assert json.loads(body)["livemode"] is True
        assert scalar(database, "SELECT livemode FROM vpay.events") is True


def test_an_intent_belongs_to_the_callers_transaction(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction() as tx:
        create_intent(tx, MERCHANT, 1000, "EUR")
        raise ZeroDivisionError
    assert scalar(database, "SELECT count(*) FROM vpay.payment_intents") == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"payer": None}, "needs the payer's phone number"),
        ({"payer": ""}, "8 to 15 digits"),
        ({"payer": "12345"}, "8 to 15 digits"),
        ({"payer": "0733123601"}, "8 to 15 digits"),
        ({"payer": "4673312360x"}, "8 to 15 digits"),
        ({"payer": "٤٦٧٣٣١٢٣٦٠١"}, "8 to 15 digits"),
        ({"payer": "46733123601\n"}, "8 to 15 digits"),
        ({"payer": "+46 (0)733-123"}, "8 to 15 digits"),
        ({"payer": 46733123601}, "8 to 15 digits"),
        ({"payer": ["46733123601"]}, "8 to 15 digits"),
        ({"payer": True}, "8 to 15 digits"),
        ({"return_url": "javascript:alert(1)"}, "return_url"),
        ({"return_url": 7}, "return_url"),
        ({"return_url": b"https://shop.example"}, "return_url"),
    ],
)
def test_a_bad_wish_is_refused_before_anything_is_written(
    database: Database, rail: MtnMomo, change: dict[str, Any], says: str
) -> None:
    intent = make_intent(database)
    with pytest.raises(InvalidRequest, match=says) as refusal:
        confirmed(database, intent, rail, **change)
    if change.get("payer"):
        assert str(change["payer"]) not in str(refusal.value)
    assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0


def test_a_currency_that_the_rail_does_not_take_is_refused_before_anything_is_written(
    database: Database, rail: MtnMomo
) -> None:
    with pytest.raises(InvalidRequest, match="takes EUR, and this intent is in XAF"):
        confirmed(database, make_intent(database, 100, "XAF"), rail)
    assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0


def test_an_intent_that_does_not_exist_can_not_be_confirmed_or_canceled(
    database: Database, rail: MtnMomo
) -> None:
    with pytest.raises(NotFound):
        confirm(database, "pi_nobody", rail=rail, payer=APPROVED)
    with pytest.raises(NotFound):
        cancel(database, "pi_nobody")


@pytest.mark.parametrize("named", [5, None, ["pi"], "", "pi_\x00", "p" * 65], ids=repr)
def test_what_is_no_id_is_refused_before_the_database_is_asked(
    database: Database, rail: MtnMomo, named: Any
) -> None:
    with pytest.raises(InvalidRequest, match="intent_id"):
        confirm(database, named, rail=rail, payer=APPROVED)
    with pytest.raises(InvalidRequest, match="intent_id"):
        cancel(database, named)


def test_a_payer_can_not_be_stored_without_a_key_and_nothing_is_sent(
    database: Database, rail: MtnMomo, stub: StubRail
) -> None:
    intent = make_intent(database)
    with (
        opened(database.url, keys=KeysTable()) as keyless,
        pytest.raises(Configuration, match=r"keys\.payer_ref"),
    ):
        confirmed(keyless, intent, rail)
    assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0
    assert stub.requests() == []


def test_a_canceled_intent_is_told_and_can_not_be_confirmed(
    database: Database, rail: MtnMomo
) -> None:
    intent = make_intent(database)
    assert cancel(database, intent.id).status is IntentStatus.CANCELED
    assert events(database) == [("payment_intent.canceled", intent.id)]
    with pytest.raises(Conflict):
        confirmed(database, intent, rail)
    with pytest.raises(Conflict):
        cancel(database, intent.id)
    assert len(events(database)) == 1


def test_an_intent_with_a_live_charge_can_not_be_canceled(
    database: Database, rail: MtnMomo, stub: StubRail
) -> None:
    intent = make_intent(database)
    stub.script(SUBMITS, Hangup())
    confirmed(database, intent, rail)
    with pytest.raises(Conflict, match="live charge"):
        cancel(database, intent.id)


def test_an_intent_whose_charge_failed_can_be_canceled(database: Database, rail: MtnMomo) -> None:
    intent = make_intent(database)
    confirmed(database, intent, rail, payer="46733123648")
    assert cancel(database, intent.id).status is IntentStatus.CANCELED
    assert [type_ for type_, _ in events(database)] == [
        "payment_intent.payment_failed",
        "payment_intent.canceled",
    ]
