"""From confirm to settled over every rail, ours and a stranger's, by the real runner."""

from __future__ import annotations

import pytest

from tests.payment_kit import RING, events, make_intent, read_charge, read_intent, scalar
from tests.payments.poll_kit import Polls, about, inquiry, replies
from tests.rails.benches import Bench
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
    answer = confirm(
        database, intent.id, rail=rail, payer=wish.payer, return_url=wish.return_url, keys=RING
    )
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
