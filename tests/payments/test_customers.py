"""Customers: changed under their lock, erased for good, also from what was written about them."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.payment_kit import MERCHANT, scalar
from tests.webhooks.world import rows
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.core.customer import Customer
from vpay_tasks.core.events import EventType, redacted
from vpay_tasks.errors import Conflict, Internal, InvalidRequest, NotFound
from vpay_tasks.payments import (
    cancel,
    create_customer,
    create_intent,
    customers,
    erase_customer,
    settlement,
    touch_customer,
    update_customer,
)
from vpay_tasks.store import intents
from vpay_tasks.store.db import Database

WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)

ADA = {"name": "Ada Byron", "email": "ada@example.com", "phone": "+46733123601"}


def make_customer(database: Database, **more: Any) -> Customer:
    with database.transaction() as tx:
        return create_customer(tx, MERCHANT, **{**ADA, "metadata": {"tier": "gold"}, **more})


def bodies(database: Database, customer: Customer) -> list[dict[str, Any]]:
    found = rows(
        database, "SELECT body FROM vpay.events WHERE customer_id = %s ORDER BY seq", customer.id
    )
    return [json.loads(body) for (body,) in found]


def types(database: Database, customer: Customer) -> list[str]:
    return [body["type"] for body in bodies(database, customer)]


def idle(database: Database, customer: Customer, days: int = 366) -> None:
    with database.transaction() as tx:
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(
            "UPDATE vpay.customers SET last_used_at = now() - make_interval(days => %s)"
            " WHERE id = %s",
            (days, customer.id),
        )


def test_a_live_customer_is_told_as_one(database: Database) -> None:
    (body,) = bodies(database, make_customer(database, livemode=True))
    assert body["livemode"] is True


def test_a_customer_is_told_as_made_and_as_changed_and_not_as_left_alone(
    database: Database,
) -> None:
    ada = make_customer(database)
    with database.transaction() as tx:
        same = update_customer(tx, MERCHANT, ada.id, name="Ada Byron", metadata={"tier": "gold"})
    assert same == ada
    with database.transaction() as tx:
        update_customer(tx, MERCHANT, ada.id, name="Ada Lovelace", email=None)
    assert types(database, ada) == ["customer.created", "customer.updated"]
    thing = bodies(database, ada)[1]["data"]["object"]
    assert thing == {
        "id": ada.id,
        "object": "customer",
        "name": "Ada Lovelace",
        "email": None,
        "phone": "+46733123601",
        "metadata": {"tier": "gold"},
        "created": int(ada.created_at.timestamp()),
        "deleted": False,
    }


def test_metadata_is_merged_key_by_key(database: Database) -> None:
    ada = make_customer(database)
    with database.transaction() as tx:
        after = update_customer(tx, MERCHANT, ada.id, metadata={"tier": None, "since": "1843"})
    assert after.metadata == {"since": "1843"}


def test_two_updates_of_different_keys_both_last(
    database: Database, eventually: Eventually
) -> None:
    ada = make_customer(database, metadata={})

    def second() -> None:
        with database.transaction() as tx:
            update_customer(tx, MERCHANT, ada.id, metadata={"b": "2"})

    other = threading.Thread(target=second)
    with database.transaction() as tx:
        update_customer(tx, MERCHANT, ada.id, metadata={"a": "1"})
        other.start()
        eventually(lambda: scalar(database, WAITING))
    other.join(10)
    metadata = "SELECT metadata::text FROM vpay.customers"
    assert json.loads(scalar(database, metadata)) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "wish",
    [
        {"name": ""},
        {"name": "x" * 256},
        {"email": "a\nb"},
        {"email": "ab"},
        {"email": "x" * 321},
        {"phone": 46733123601},
        {"phone": "12"},
        {"phone": "1" * 33},
        {"metadata": {"k": 1}},
        {"metadata": {"": None}},
        {"metadata": {f"k{n}": "v" for n in range(51)}},
    ],
)
def test_what_can_not_be_stored_changes_nothing(database: Database, wish: dict[str, Any]) -> None:
    ada = make_customer(database)
    with database.transaction() as tx, pytest.raises(InvalidRequest):
        update_customer(tx, MERCHANT, ada.id, **wish)
    assert types(database, ada) == ["customer.created"]


def test_another_merchants_customer_is_none(database: Database) -> None:
    ada = make_customer(database)
    with database.transaction() as tx:
        with pytest.raises(NotFound):
            update_customer(tx, "other", ada.id, name="x")
        with pytest.raises(NotFound):
            touch_customer(tx, "other", ada.id)
        with pytest.raises(NotFound):
            create_intent(tx, "other", 1000, "EUR", customer_id=ada.id)
    with pytest.raises(NotFound):
        erase_customer(database, "other", ada.id)


def test_a_customer_of_one_mode_makes_no_payment_of_the_other(database: Database) -> None:
    ada = make_customer(database)
    with database.transaction() as tx, pytest.raises(InvalidRequest, match="of test mode"):
        create_intent(tx, MERCHANT, 1000, "EUR", customer_id=ada.id, livemode=True)


def test_an_intent_needs_a_customer_who_is_there(database: Database) -> None:
    with database.transaction() as tx, pytest.raises(NotFound):
        create_intent(tx, MERCHANT, 1000, "EUR", customer_id="cus_nobody")


def test_a_payment_is_a_use_and_uses_only_move_forward(database: Database) -> None:
    ada = make_customer(database)
    idle(database, ada)
    with database.transaction() as tx:
        create_intent(tx, MERCHANT, 1000, "EUR", customer_id=ada.id)
    assert not customers.erase_if_idle(database, ada.id)
    with database.connection() as raw, pytest.raises(Exception, match="only moves forward"):
        raw.execute("UPDATE vpay.customers SET last_used_at = now() - interval '1 day'")


def test_an_unreferenced_customer_is_deleted_and_their_events_say_nothing_of_them(
    database: Database,
) -> None:
    ada = make_customer(database)
    erase_customer(database, MERCHANT, ada.id)
    assert scalar(database, "SELECT count(*) FROM vpay.customers") == 0
    assert types(database, ada) == ["customer.created", "customer.deleted"]
    for body in bodies(database, ada):
        thing = body["data"]["object"]
        assert (thing["name"], thing["email"], thing["phone"]) == (None, None, None)
        assert thing["metadata"] == {}
    assert bodies(database, ada)[1]["data"]["object"]["deleted"] is True


def test_a_referenced_customer_stays_as_a_number_and_their_payments_with_them(
    database: Database,
) -> None:
    ada = make_customer(database)
    with database.transaction() as tx:
        intent = create_intent(
            tx, MERCHANT, 1000, "EUR", customer_id=ada.id, metadata={"for": "Ada"}
        )
    cancel(database, intent.id)
    erase_customer(database, MERCHANT, ada.id)
    erase_customer(database, MERCHANT, ada.id)
    ((name, email, phone, metadata, done),) = rows(
        database,
        "SELECT name, email, phone, metadata, redaction_done_at IS NOT NULL FROM vpay.customers",
    )
    assert (name, email, phone, metadata, done) == (None, None, None, {}, True)
    assert scalar(database, "SELECT metadata::text FROM vpay.payment_intents") == "{}"
    assert types(database, ada) == [
        "customer.created",
        "payment_intent.canceled",
        "customer.deleted",
    ]
    canceled = bodies(database, ada)[1]["data"]["object"]
    assert (canceled["amount"], canceled["status"], canceled["metadata"]) == (1000, "canceled", {})


def test_an_erased_customer_comes_back_by_no_door(database: Database) -> None:
    ada = make_customer(database)
    with database.transaction() as tx:
        create_intent(tx, MERCHANT, 1000, "EUR", customer_id=ada.id)
    erase_customer(database, MERCHANT, ada.id)
    with database.transaction() as tx:
        with pytest.raises(Conflict):
            update_customer(tx, MERCHANT, ada.id, name="Ada")
        with pytest.raises(Conflict):
            touch_customer(tx, MERCHANT, ada.id)
        with pytest.raises(Conflict):
            create_intent(tx, MERCHANT, 1000, "EUR", customer_id=ada.id)
    for change in ("erased_at = NULL", "name = 'Ada'"):
        with database.connection() as raw, pytest.raises(Exception, match="erased"):
            raw.execute(f"UPDATE vpay.customers SET {change}".encode())


def test_a_body_keeps_its_revision_if_there_was_nothing_to_redact(database: Database) -> None:
    ada = make_customer(database)
    erase_customer(database, MERCHANT, ada.id)
    found = rows(database, "SELECT type, body_rev FROM vpay.events ORDER BY seq")
    assert found == [("customer.created", 2), ("customer.deleted", 1)]


def test_more_than_a_page_is_redacted_by_further_pages_that_a_crash_only_delays(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(customers, "PAGE", 3)
    ada = make_customer(database)
    for number in range(8):
        with database.transaction() as tx:
            update_customer(tx, MERCHANT, ada.id, name=f"Ada {number}")
    idle(database, ada)
    assert customers.erase_if_idle(database, ada.id)
    # As if the process had died here: the row is what remembers.
    left = "SELECT count(*) FROM vpay.events WHERE NOT redacted"
    assert scalar(database, left) == 7
    assert scalar(database, "SELECT count(*) FROM vpay.customers") == 1
    assert [customers.redact_page(database, ada.id) for _ in range(3)] == [True, True, False]
    assert scalar(database, left) == 0
    assert scalar(database, "SELECT count(*) FROM vpay.customers") == 0
    assert "Ada" not in json.dumps(bodies(database, ada))
    assert not customers.redact_page(database, ada.id)


def test_a_settlement_under_way_is_waited_for_and_its_event_redacted(
    database: Database, eventually: Eventually
) -> None:
    ada = make_customer(database)
    with database.transaction() as tx:
        intent = create_intent(
            tx, MERCHANT, 1000, "EUR", customer_id=ada.id, metadata={"for": "Ada"}
        )
    idle(database, ada)
    # As the sweep does it, which looks at nobody twice whose erasure says that it is done.
    erasing = threading.Thread(target=customers.erase_if_idle, args=(database, ada.id))
    with database.transaction() as tx:
        failed = intents.fall_back(tx, intent.id, FailureCode.PAYER_TIMEOUT)
        assert failed is not None
        erasing.start()
        eventually(lambda: scalar(database, WAITING))
        settlement.tell(tx, EventType.PAYMENT_INTENT_PAYMENT_FAILED, failed, None)
    erasing.join(10)
    told = [body for body in bodies(database, ada) if body["type"].startswith("payment_intent")]
    assert [body["data"]["object"]["metadata"] for body in told] == [{}]


def test_of_an_erasure_and_a_purchase_at_once_one_sees_the_other(database: Database) -> None:
    for _ in range(25):
        ada = make_customer(database)
        idle(database, ada)
        outcomes: list[str] = []

        def buy(customer_id: str = ada.id, outcomes: list[str] = outcomes) -> None:
            try:
                with database.transaction() as tx:
                    create_intent(tx, MERCHANT, 1000, "EUR", customer_id=customer_id)
                outcomes.append("bought")
            except (Conflict, NotFound):
                outcomes.append("too late")

        buying = threading.Thread(target=buy)
        buying.start()
        erased = customers.erase_if_idle(database, ada.id)
        buying.join(10)
        assert outcomes == (["too late"] if erased else ["bought"])


def test_bytes_that_are_no_event_are_never_passed_off_as_redacted() -> None:
    for body in (b"{}", b"[]", b'{"data":1}', b"\xff", b'{"data":{"object":[]}}'):
        with pytest.raises(Internal):
            redacted(body)


def test_a_redaction_keeps_the_order_and_everything_else() -> None:
    thing = b'{"id":"cus_1","name":%s,"a":2,"metadata":%s}'
    body = b'{"id":"evt_1","z":1,"data":{"object":' + thing + b"}}"
    assert redacted(body % (b'"A"', b'{"k":"v"}')) == body % (b"null", b"{}")
