"""Answers that are no verdict, to a submit and to questions, over every rail: nothing moves, the
right person is told, and the payment ends as the rail says once it speaks.
"""

from __future__ import annotations

import logging

import pytest

from tests.payment_kit import events, force, make_intent, read_charge, read_intent
from tests.payments.poll_kit import Polls, inquiry, replies
from tests.payments.process_kit import until_it_ends
from tests.payments.resubmit_kit import classes
from tests.rails.benches import Bench, garbled, troubles
from vpay_sandbox.httpd import Answer, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import AttemptClass, Charge, FailureCode, Flow, IntentStatus, State
from vpay_tasks.payments import Processing, confirm
from vpay_tasks.rails.port import RailPort
from vpay_tasks.store.db import Database

NO_ANSWERS: dict[str, Answer] = {
    **troubles(),
    "401": Reply(401),
    "html": Reply(200, b"<html>Rejected</html>"),
    "empty": Reply(200),
    "404": Reply(404),
    "404 with a body": Reply(404, b'{"statusCode":404,"message":"Resource not found"}'),
    "an unknown word": Reply(400, b'{"code":"NEVER_HEARD_OF"}'),
    "not utf-8": Reply(400, b"\xff\x00"),
    "garbled": Reply(200, next(iter(garbled(b'{"status":"x"}').values()))),
}
OUR_CREDENTIALS = {"401", "403"}


@pytest.fixture
def rail(bench: Bench, stub: StubRail) -> RailPort:
    return bench.rail(stub)


def unknown(
    database: Database, bench: Bench, rail: RailPort, stub: StubRail, reply: Answer
) -> Charge:
    """A charge whose submit was answered by `reply`, which says nothing."""
    stub.forget_scripts()
    stub.script(bench.submits, reply, times=2)  # a 401 is tried once more
    wish = bench.order()
    intent = make_intent(database, bench.amount, bench.currency)
    answer = confirm(database, intent.id, rail=rail, payer=wish.payer, return_url=wish.return_url)
    assert isinstance(answer, Processing)
    return answer.charge


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_a_submit_that_was_answered_by_no_verdict_ends_as_the_rail_says_later(
    database: Database,
    bench: Bench,
    rail: RailPort,
    stub: StubRail,
    polls: Polls,
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    charge = unknown(database, bench, rail, stub, NO_ANSWERS[name])
    told = [r.levelno for r in caplog.records if r.message.startswith("a submit was not")]
    assert told == [logging.CRITICAL if name in OUR_CREDENTIALS else logging.WARNING]
    assert classes(database, charge) == [AttemptClass.UNKNOWN]
    assert charge.state is State.SUBMITTING
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert events(database) == []
    stub.forget_scripts()
    bench.serve(stub)
    stub.script(bench.statuses, bench.said(inquiry(charge), "succeeded"), times=None)
    until_it_ends(database, polls, charge)
    after = read_charge(database, charge.id)
    match rail.flow:
        case Flow.PUSH:
            assert after.state is State.SUCCEEDED
        case Flow.REDIRECT:  # nobody ever had its page
            assert after.failure_code is FailureCode.PROVIDER_UNAVAILABLE
    assert len(events(database)) == 1


def test_questions_that_are_answered_by_no_verdict_move_no_charge_whose_submit_is_unknown(
    database: Database, bench: Bench, rail: RailPort, stub: StubRail, polls: Polls
) -> None:
    if rail.flow is Flow.REDIRECT:
        return  # it can't be asked for without what its submit would have answered
    charge = unknown(database, bench, rail, stub, Reply(503))
    with database.transaction() as tx:
        force(tx, charge.id, age=61)
    stub.forget_scripts()
    for name, reply in replies(charge).items():
        stub.script(bench.statuses, reply)
        row = polls.run(charge)
        assert row is not None, name
        assert (row.last_error is not None, row.parked) == (True, False), name
        after = read_charge(database, charge.id)
        assert (after.state, after.not_found_streak) == (State.SUBMITTING, 0), name
    assert events(database) == []
    assert polls.resubmission(charge) is None
    stub.script(bench.statuses, bench.said(inquiry(charge), "failed"))
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).state is State.FAILED
