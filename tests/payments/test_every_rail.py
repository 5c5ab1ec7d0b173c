"""From confirm to settled over every rail, ours and a stranger's, by the real runner."""

from __future__ import annotations

import json
import logging

import pytest

from tests.payment_kit import events, make_intent, read_charge, read_intent, scalar
from tests.payments.poll_kit import Polls, about, inquiry, replies
from tests.rails.benches import Bench
from vpay_sandbox.httpd import Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import Charge, FailureCode, IntentStatus, PaymentIntent, State
from vpay_tasks.payments import Confirmed, confirm
from vpay_tasks.rails.port import RailPort
from vpay_tasks.store.db import Database


@pytest.fixture
def rail(bench: Bench, stub: StubRail) -> RailPort:
    return bench.rail(stub)


def begin(database: Database, bench: Bench, rail: RailPort) -> tuple[PaymentIntent, Charge]:
    intent = make_intent(database, bench.amount, bench.currency)
    wish = bench.order()
    answer = confirm(database, intent.id, rail=rail, payer=wish.payer, return_url=wish.return_url)
    assert isinstance(answer, Confirmed)
    assert answer.charge.state is State.SUBMITTED
    assert answer.charge.provider_code == bench.code
    return intent, answer.charge


def test_a_payment_is_confirmed_asked_for_and_settled(
    database: Database, bench: Bench, rail: RailPort, stub: StubRail, polls: Polls
) -> None:
    intent, charge = begin(database, bench, rail)
    assert read_intent(database, intent.id).status is rail.flow.status_once_submitted
    stub.script(bench.statuses, bench.said(inquiry(charge), "pending"))
    stub.script(bench.statuses, bench.said(inquiry(charge), "succeeded"))
    assert about(polls.run(charge)) == 10
    assert read_charge(database, charge.id).state is State.PENDING
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).state is State.SUCCEEDED
    after = read_intent(database, intent.id)
    assert (after.status, after.amount_received) == (IntentStatus.SUCCEEDED, bench.amount)
    assert events(database) == [("payment_intent.succeeded", intent.id)]


@pytest.mark.parametrize("junk", ["a\x00b", "\ud800", "\u202e\x1b[31m", "x" * 9000])
def test_a_failure_in_whatever_words_opens_the_intent_again(
    database: Database, bench: Bench, rail: RailPort, stub: StubRail, polls: Polls, junk: str
) -> None:
    intent, charge = begin(database, bench, rail)
    words = {bench.reason: f"payer 46733123601 {junk}"}
    stub.script(bench.statuses, bench.said(inquiry(charge), "failed", **words))
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).failure_code is FailureCode.PROVIDER_ERROR
    assert read_intent(database, intent.id).status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert events(database) == [("payment_intent.payment_failed", intent.id)]
    raw = scalar(database, "SELECT failure_raw FROM vpay.charges WHERE id = %s", charge.id)
    assert len(raw) <= 2000
    assert raw.isprintable()
    assert "46733123601" not in raw


NUMBERS = [
    "PAYER_46733123601_UNKNOWN",
    "46733123601",
    "46 733  123 601",
    "\u0664\u0666\u0667\u0663\u0663\u0661\u0662\u0663\u0666\u0660\u0661",
    "+46\u00a0733\u00a0123\u00a0601",
]


@pytest.mark.parametrize("word", NUMBERS, ids=range(len(NUMBERS)))
def test_a_number_where_a_code_should_be_reaches_no_row_and_no_line(
    database: Database,
    bench: Bench,
    rail: RailPort,
    stub: StubRail,
    polls: Polls,
    word: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"code": word, "message": word, "reason": word, "status": word}).encode()
    _, charge = begin(database, bench, rail)
    for answer in (bench.said(inquiry(charge), word), Reply(500, body), Reply(400, body)):
        stub.script(bench.statuses, answer)
        row = polls.run(charge)
        assert row is not None
        assert row.last_error is not None
        assert word not in row.last_error
        stub.script(bench.submits, answer)
        wish = bench.order()
        another = make_intent(database, bench.amount, bench.currency)
        confirm(database, another.id, rail=rail, payer=wish.payer, return_url=wish.return_url)
    shown = [str(record.__dict__) for record in caplog.records]
    shown += scalar(database, "SELECT array_agg(r::text) FROM vpay.provider_requests r")
    shown += scalar(database, "SELECT array_agg(j::text) FROM vpay.jobs j")
    text = "\n".join(shown)
    assert [n for n in (word, ascii(word)[1:-1], "46733123601") if n in text] == []


def test_nothing_but_a_documented_word_about_this_very_payment_moves_it(
    database: Database, bench: Bench, rail: RailPort, stub: StubRail, polls: Polls
) -> None:
    intent, charge = begin(database, bench, rail)
    standing = read_intent(database, intent.id)
    for count, (name, reply) in enumerate(replies(charge).items(), start=1):
        stub.script(bench.statuses, reply)
        row = polls.run(charge)
        assert row is not None, name
        assert row.last_error is not None, name
        assert (row.failures, row.parked) == (count, False), name
        assert [secret for secret in bench.secrets(stub) if secret in row.last_error] == [], name
        after = read_charge(database, charge.id)
        assert (after.state, after.polls) == (State.SUBMITTED, count), name
    assert read_intent(database, intent.id) == standing
    assert events(database) == []
    stub.script(bench.statuses, bench.said(inquiry(charge), "succeeded"))
    assert polls.run(charge) is None
