"""One poll after another, by the real runner, against a real rail and a real database."""

from __future__ import annotations

import json

import pytest

from tests.payment_kit import (
    event_rows,
    events,
    make_attempt,
    make_charge,
    read_charge,
    read_intent,
)
from tests.payments.poll_kit import NOT_FOUND, STATUS, Polls, about, told
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import AttemptClass, FailureCode, IntentStatus, State
from vpay_tasks.store.db import Database


def test_a_payment_is_asked_for_until_the_rail_says_paid(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTED)
    stub.script(STATUS, told(charge, "PENDING"), times=2)
    stub.script(STATUS, told(charge, "SUCCESSFUL", financialTransactionId="4711"))
    delays = [about(polls.run(charge)), about(polls.run(charge))]
    assert delays == [10, 20]
    pending = read_charge(database, charge.id)
    assert (pending.state, pending.polls) == (State.PENDING, 2)
    assert polls.run(charge) is None
    paid = read_charge(database, charge.id)
    assert (paid.state, paid.provider_txn_id) == (State.SUCCEEDED, "4711")
    intent = read_intent(database, charge.payment_intent_id)
    assert (intent.status, intent.amount_received) == (IntentStatus.SUCCEEDED, 1000)
    assert events(database) == [("payment_intent.succeeded", intent.id)]


@pytest.mark.parametrize("reason", ["NOT_ENOUGH_FUNDS", {"code": "NOT_ENOUGH_FUNDS"}])
def test_a_payment_that_failed_opens_its_intent_again_and_is_told(
    database: Database, stub: StubRail, polls: Polls, reason: object
) -> None:
    charge = make_charge(database, state=State.PENDING)
    stub.script(STATUS, told(charge, "FAILED", reason=reason))
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).failure_code is FailureCode.INSUFFICIENT_FUNDS
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.REQUIRES_PAYMENT_METHOD
    (type_, _, body) = event_rows(database)[0]
    assert type_ == "payment_intent.payment_failed"
    error = json.loads(body)["data"]["object"]["last_payment_error"]
    assert error["code"] == "insufficient_funds"


def test_a_poll_of_a_settled_charge_asks_nothing(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUCCEEDED)
    assert polls.run(charge) is None
    assert stub.requests() == []


def test_a_charge_that_its_confirm_may_still_work_on_is_left_alone(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTING, age=45)
    row = polls.run(charge)
    assert about(row) == 16
    assert stub.requests() == []
    assert read_charge(database, charge.id) == charge


def test_an_unanswered_submit_is_asked_for_and_settles(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTING, age=61)
    make_attempt(database, charge, None)
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert read_intent(database, charge.payment_intent_id).status is IntentStatus.SUCCEEDED


def test_an_accepted_submit_without_its_bookkeeping_gets_it(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTING, age=61)
    make_attempt(database, charge, AttemptClass.ACCEPTED)
    assert about(polls.run(charge)) == 0
    assert read_charge(database, charge.id).state is State.SUBMITTED
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.PROCESSING
    assert stub.requests() == []


def test_a_declined_submit_without_its_bookkeeping_fails(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTING, age=61)
    make_attempt(database, charge, AttemptClass.DECLINED, FailureCode.INVALID_PAYER)
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).failure_code is FailureCode.INVALID_PAYER
    assert len(events(database)) == 1
    assert stub.requests() == []


def test_a_rail_that_does_not_know_it_is_asked_again_and_the_streak_is_counted(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTED)
    stub.script(STATUS, NOT_FOUND, times=3)
    assert [about(polls.run(charge)) for _ in range(3)] == [10, 20, 30]
    after = read_charge(database, charge.id)
    assert (after.state, after.not_found_streak, after.polls) == (State.SUBMITTED, 3, 3)
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
