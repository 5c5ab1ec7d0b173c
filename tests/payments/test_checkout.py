"""Checkout sessions: open until paid or over, never over beside a live charge."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import pytest

from tests.payment_kit import APPROVED, MERCHANT, make_charge, make_intent, scalar
from tests.webhooks.world import rows
from vpay_tasks.core.answers import Succeeded
from vpay_tasks.core.charge import State
from vpay_tasks.core.customer import CheckoutSession
from vpay_tasks.core.walk import FRONT
from vpay_tasks.errors import Conflict, InvalidRequest, NotFound
from vpay_tasks.payments import (
    cancel,
    checkout,
    confirm,
    create_session,
    expire_session,
    session_of_secret,
    settlement,
)
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.store import sessions
from vpay_tasks.store.db import Database

PAGE_URL = "https://pay.example/c/1"


def make_session(database: Database, intent_id: str | None = None) -> tuple[CheckoutSession, str]:
    intent_id = intent_id or make_intent(database).id
    with database.transaction() as tx:
        return create_session(tx, MERCHANT, intent_id, url=PAGE_URL)


def due(database: Database) -> list[sessions.Due]:
    with database.connection() as connection:
        return sessions.page_due(connection, FRONT, page=100)


def end(database: Database) -> None:
    rows(database, "UPDATE vpay.checkout_sessions SET expires_at = now() - interval '1 s'")


def status(database: Database) -> tuple[Any, ...]:
    (found,) = rows(database, "SELECT status, payment_status FROM vpay.checkout_sessions")
    return found


def told(database: Database) -> list[dict[str, Any]]:
    query = "SELECT body FROM vpay.events WHERE type = 'checkout.session.expired'"
    return [json.loads(body)["data"]["object"] for (body,) in rows(database, query)]


def test_a_session_that_is_over_expires_once_and_tells_without_page_or_secret(
    database: Database,
) -> None:
    session, secret = make_session(database)
    assert due(database) == []
    end(database)
    (one,) = due(database)
    assert checkout.expire_due(database, one)
    assert not checkout.expire_due(database, one)
    assert status(database) == ("expired", "unpaid")
    (thing,) = told(database)
    assert list(thing) == [
        "id",
        "object",
        "payment_intent",
        "status",
        "payment_status",
        "url",
        "created",
        "expires_at",
    ]
    assert (thing["id"], thing["status"], thing["url"]) == (session.id, "expired", None)
    assert secret not in json.dumps(thing)
    assert due(database) == []


def test_a_session_is_found_by_its_secret_which_is_stored_nowhere(database: Database) -> None:
    session, secret = make_session(database)
    with database.connection() as connection:
        assert session_of_secret(connection, session.id, secret) == session
        for id_, word in ((session.id, "x"), ("cs_other", secret), (session.id, "\ud800")):
            with pytest.raises(NotFound):
                session_of_secret(connection, id_, word)
        ((text,),) = connection.execute("SELECT s::text FROM vpay.checkout_sessions s").fetchall()
    assert secret not in text
    assert secret not in repr(session)


@pytest.mark.parametrize("state", [s for s in State if not s.terminal])
def test_a_session_that_is_being_paid_stays_open_whatever_its_time(
    database: Database, state: State
) -> None:
    intent = make_intent(database)
    session, _ = make_session(database, intent.id)
    make_charge(database, intent, state=state)
    end(database)
    assert due(database) == []
    one = sessions.Due(id=session.id, payment_intent_id=intent.id)
    assert not checkout.expire_due(database, one)
    with pytest.raises(Conflict, match="being paid"):
        expire_session(database, MERCHANT, session.id)
    assert status(database) == ("open", "unpaid")


def test_a_settlement_completes_the_session_of_its_intent(database: Database) -> None:
    intent = make_intent(database)
    session, _ = make_session(database, intent.id)
    charge = make_charge(database, intent, state=State.PENDING)
    with database.transaction() as tx:
        assert settlement.settle(tx, charge, Succeeded("1"))
    assert status(database) == ("complete", "paid")
    with pytest.raises(Conflict, match="is over"):
        expire_session(database, MERCHANT, session.id)


def test_the_database_refuses_to_open_an_ended_session(database: Database) -> None:
    session, _ = make_session(database)
    expire_session(database, MERCHANT, session.id)
    for change in ("status = 'open'", "status = 'complete', payment_status = 'paid'"):
        with database.connection() as connection, pytest.raises(Exception, match="terminal"):
            connection.execute(f"UPDATE vpay.checkout_sessions SET {change}".encode())


def test_an_intent_has_one_session_while_it_can_be_paid(database: Database) -> None:
    intent = make_intent(database)
    make_session(database, intent.id)
    with pytest.raises(Conflict, match="has a checkout session"):
        make_session(database, intent.id)
    over = make_intent(database)
    cancel(database, over.id)
    busy = make_intent(database)
    make_charge(database, busy)
    for intent in (over, busy):
        with pytest.raises(Conflict, match="over, or being paid"):
            make_session(database, intent.id)


def test_another_merchants_session_or_intent_is_none(database: Database) -> None:
    session, _ = make_session(database)
    intent = make_intent(database)
    with pytest.raises(NotFound):
        expire_session(database, "other", session.id)
    with pytest.raises(NotFound), database.transaction() as tx:
        create_session(tx, "other", intent.id, url=PAGE_URL)


@pytest.mark.parametrize(
    "wish",
    [
        {"url": "javascript:alert(1)"},
        {"url": ""},
        {"url": None},
        {"expires_in": 59},
        {"expires_in": 2_592_001},
        {"expires_in": float("nan")},
        {"expires_in": "3600"},
        {"expires_in": None},
    ],
)
def test_a_session_that_could_not_be_used_is_refused(
    database: Database, wish: dict[str, Any]
) -> None:
    intent = make_intent(database)
    with pytest.raises(InvalidRequest), database.transaction() as tx:
        create_session(tx, MERCHANT, intent.id, **{"url": PAGE_URL, **wish})
    assert scalar(database, "SELECT count(*) FROM vpay.checkout_sessions") == 0


def test_an_intent_whose_session_has_expired_is_confirmed_no_more(
    database: Database, rail: MtnMomo
) -> None:
    intent = make_intent(database)
    session, _ = make_session(database, intent.id)
    expire_session(database, MERCHANT, session.id)
    with pytest.raises(Conflict, match="its page has expired"):
        confirm(database, intent.id, rail=rail, payer=APPROVED)
    assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0


def test_a_session_whose_time_is_over_is_over_before_any_sweep_says_so(
    database: Database, rail: MtnMomo
) -> None:
    intent = make_intent(database)
    make_session(database, intent.id)
    end(database)
    with pytest.raises(Conflict, match="its page has expired"):
        confirm(database, intent.id, rail=rail, payer=APPROVED)
    assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0


def test_a_confirm_and_an_expiry_at_once_never_leave_a_live_charge_beside_an_expired_session(
    database: Database, rail: MtnMomo
) -> None:
    for _ in range(15):
        intent = make_intent(database)
        session, _ = make_session(database, intent.id)
        outcomes: list[str] = []

        def pay(intent_id: str = intent.id, outcomes: list[str] = outcomes) -> None:
            try:
                confirm(database, intent_id, rail=rail, payer=APPROVED)
                outcomes.append("confirmed")
            except Conflict:
                outcomes.append("too late")

        paying = threading.Thread(target=pay)
        paying.start()
        one = sessions.Due(id=session.id, payment_intent_id=intent.id)
        expired = checkout.expire_due(database, one)
        assert not expired  # not due yet
        with contextlib.suppress(Conflict):
            expire_session(database, MERCHANT, session.id)
            outcomes.append("expired")
        paying.join(30)
        assert sorted(outcomes) in (["confirmed"], ["expired", "too late"])
