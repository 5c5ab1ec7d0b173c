"""Confirm, cancel and the end of a checkout session at once: one consistent end, each time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.conftest import Eventually
from tests.payment_kit import (
    APPROVED,
    MERCHANT,
    make_intent,
    read_intent,
    scalar,
)
from tests.webhooks.world import rows
from vpay_tasks.core.charge import IntentStatus, PaymentIntent
from vpay_tasks.core.customer import CheckoutSession, SessionStatus
from vpay_tasks.errors import Conflict
from vpay_tasks.payments import (
    Confirmed,
    Exists,
    cancel,
    confirm,
    create_session,
    expire_session,
)
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.store import charges, intents, sessions
from vpay_tasks.store.db import Database

WAITS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
Act = Callable[[], object]


def a_session(database: Database, intent: PaymentIntent) -> CheckoutSession:
    with database.transaction() as tx:
        session, _ = create_session(tx, MERCHANT, intent.id, url="https://pay.example/1")
    return session


def at_once(*acts: Act) -> list[object]:
    """What each of them answered or, for a Conflict, raised."""
    barrier = threading.Barrier(len(acts))
    answers: list[object] = [None] * len(acts)

    def one(place: int, act: Act) -> None:
        barrier.wait()
        try:
            answers[place] = act()
        except Conflict as error:
            answers[place] = error

    threads = [threading.Thread(target=one, args=item) for item in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def one_round(database: Database, rail: MtnMomo) -> str:
    """Two confirms, a cancel and an expiry of one intent; which of them won."""
    intent = make_intent(database)
    session = a_session(database, intent)

    def pay() -> object:
        return confirm(database, intent.id, rail=rail, payer=APPROVED)

    first, second, canceled, expired = at_once(
        pay,
        pay,
        lambda: cancel(database, intent.id),
        lambda: expire_session(database, MERCHANT, session.id),
    )
    with database.connection() as connection:
        charge = charges.of_intent(connection, intent.id)
        after = sessions.read(connection, session.id)
    assert after is not None
    status = read_intent(database, intent.id).status
    if charge is not None:
        # Paid: both confirms know the one charge, and nobody else had his way.
        assert {type(first), type(second)} == {Confirmed, Exists}
        assert isinstance(canceled, Conflict)
        assert isinstance(expired, Conflict)
        assert (status, after.status) == (IntentStatus.PROCESSING, SessionStatus.OPEN)
        return "paid"
    assert isinstance(first, Conflict)
    assert isinstance(second, Conflict)
    assert isinstance(canceled, PaymentIntent) or isinstance(expired, CheckoutSession)
    assert (status is IntentStatus.CANCELED) == isinstance(canceled, PaymentIntent)
    assert (after.status is SessionStatus.EXPIRED) == isinstance(expired, CheckoutSession)
    return "over"


def play(database: Database, rail: MtnMomo, rounds: int) -> None:
    ends = [one_round(database, rail) for _ in range(rounds)]
    assert set(ends) == {"paid", "over"}, "every end was met"
    query = "SELECT count(*) FROM vpay.charges"
    assert scalar(database, query) == ends.count("paid")


def test_of_confirms_a_cancel_and_an_expiry_at_once_each_round_has_one_end(
    database: Database, rail: MtnMomo
) -> None:
    play(database, rail, 40)


@pytest.mark.more(seconds=90)
def test_a_thousand_rounds_have_one_end_each(database: Database, rail: MtnMomo) -> None:
    play(database, rail, 1_000)


@pytest.mark.parametrize("who", ["cancel", "expire"])
def test_who_waits_for_a_confirm_judges_what_it_has_written(
    database: Database, eventually: Eventually, who: str
) -> None:
    intent = make_intent(database)
    session = a_session(database, intent)
    acts: dict[str, Act] = {
        "cancel": lambda: cancel(database, intent.id),
        "expire": lambda: expire_session(database, MERCHANT, session.id),
    }
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.extend(at_once(acts[who])))
    # The first step of a confirm, with its commit held back.
    with database.transaction() as tx:
        assert intents.lock(tx, intent.id)
        thread.start()
        eventually(lambda: scalar(database, WAITS) == 1)
        charge = charges.insert(
            tx,
            id="ch_late",
            payment_intent_id=intent.id,
            provider_code="mtn_momo",
            provider_reference_id="late",
            return_url=None,
            amount=intent.amount,
            currency=intent.currency,
            payer_ref=None,
            payer_masked=None,
        )
        assert charge is not None
    thread.join()
    assert isinstance(answers[0], Conflict)
    assert read_intent(database, intent.id).status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert rows(database, "SELECT status FROM vpay.checkout_sessions") == [("open",)]


@pytest.mark.parametrize("who", ["cancel", "expire"])
def test_a_confirm_that_waits_judges_what_was_written_before_it(
    database: Database, rail: MtnMomo, eventually: Eventually, who: str
) -> None:
    intent = make_intent(database)
    session = a_session(database, intent)
    answers: list[object] = []

    def pay() -> None:
        answers.extend(at_once(lambda: confirm(database, intent.id, rail=rail, payer=APPROVED)))

    thread = threading.Thread(target=pay)
    with database.transaction() as tx:
        assert intents.lock(tx, intent.id)
        thread.start()
        eventually(lambda: scalar(database, WAITS) == 1)
        if who == "cancel":
            assert intents.cancel(tx, intent.id) is not None
        else:
            assert sessions.expire(tx, session.id, only_due=False) is not None
    thread.join()
    assert isinstance(answers[0], Conflict)
    assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0
    assert scalar(database, "SELECT count(*) FROM vpay.jobs") == 0
