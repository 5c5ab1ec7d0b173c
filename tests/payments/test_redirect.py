"""A redirect rail's payments: the page, its lost answers, and the dead orders they leave."""

from __future__ import annotations

import logging
import urllib.request
from typing import Any

import pytest

from tests.payment_kit import (
    event_rows,
    events,
    force,
    make_attempt,
    make_charge,
    make_intent,
    read_attempts,
    read_charge,
    read_intent,
    scalar,
)
from tests.payments.poll_kit import Polls, about, inquiry
from tests.rails.benches import ORANGE
from vpay_sandbox.httpd import Answer, Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import AttemptClass, Charge, FailureCode, IntentStatus, State
from vpay_tasks.errors import InvalidRequest
from vpay_tasks.payments import Confirmation, Confirmed, Exists, Processing, Redirect, confirm
from vpay_tasks.rails.port import RailPort
from vpay_tasks.store import charges
from vpay_tasks.store.db import Database

BACK = "https://shop.example/back?order=7"
BY_HAND = 5000
SECOND_LOOK = 61.0


@pytest.fixture
def orange(stub: StubRail) -> RailPort:
    return ORANGE.rail(stub)


def confirmed(
    database: Database, rail: RailPort, amount: int = BY_HAND, **more: Any
) -> Confirmation:
    intent = make_intent(database, amount, more.pop("currency", "XAF"))
    return confirm(database, intent.id, rail=rail, **{"return_url": BACK, **more})


def page_of(answer: Confirmation) -> str:
    assert isinstance(answer, Confirmed)
    assert isinstance(answer.next_action, Redirect)
    return answer.next_action.url


class StayHere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def opens(url: str) -> tuple[int, str | None]:
    """A payer opens `url`: the status, and where it sends them."""
    opener = urllib.request.build_opener(StayHere, urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as page:
            return page.status, None
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.headers["Location"]


def in_state(database: Database, state: State, **columns: Any) -> Charge:
    """A charge on the redirect rail; older than the recovery window."""
    intent = make_intent(database, BY_HAND, "XAF")
    columns = {"provider_code": "orange_money", "payer_ref": None, "payer_masked": None, **columns}
    return make_charge(database, intent, state=state, age=SECOND_LOOK, **columns)


def test_a_payer_is_sent_to_a_page_pays_there_and_the_poll_settles_it(
    database: Database, orange: RailPort, polls: Polls
) -> None:
    answer = confirmed(database, orange)
    page = page_of(answer)
    charge = read_charge(database, answer.charge.id)
    assert (charge.redirect_url, charge.return_url) == (page, BACK)
    assert (charge.payer_ref, charge.payer_masked) == (None, None)
    assert set(charge.provider_ref_extra) == {"pay_token", "callback_key"}
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.REQUIRES_ACTION
    assert about(polls.run(charge)) == 10
    assert opens(page) == (200, None)
    assert about(polls.run(charge)) == 20
    assert opens(f"{page}?answer=approve") == (302, BACK)
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).state is State.SUCCEEDED
    assert read_intent(database, intent.id).status is IntentStatus.SUCCEEDED
    assert events(database) == [("payment_intent.succeeded", intent.id)]


@pytest.mark.parametrize(
    ("amount", "polled", "code"),
    [(3611, 3, FailureCode.PAYER_TIMEOUT), (3612, 2, FailureCode.PROVIDER_ERROR)],
    ids=["expired", "failed"],
)
def test_a_page_that_ends_unpaid_opens_the_intent_again(
    database: Database,
    orange: RailPort,
    polls: Polls,
    amount: int,
    polled: int,
    code: FailureCode,
) -> None:
    charge = confirmed(database, orange, amount).charge
    rows = [polls.run(charge) for _ in range(polled)]
    assert [row is None for row in rows] == [False] * (polled - 1) + [True]
    assert read_charge(database, charge.id).failure_code is code
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert events(database) == [("payment_intent.payment_failed", intent.id)]


def test_a_payer_who_declines_on_the_page_has_not_paid(
    database: Database, orange: RailPort, polls: Polls
) -> None:
    answer = confirmed(database, orange)
    assert opens(f"{page_of(answer)}?answer=decline") == (302, BACK)
    assert polls.run(answer.charge) is None
    assert read_charge(database, answer.charge.id).state is State.FAILED


def test_a_page_that_is_never_opened_is_unresolved_past_the_horizon_and_never_failed_by_a_timer(
    database: Database, orange: RailPort, polls: Polls
) -> None:
    charge = confirmed(database, orange, 3613).charge
    with database.transaction() as tx:
        force(tx, charge.id, age=86_401)
    assert about(polls.run(charge)) == 3600
    assert read_charge(database, charge.id).state is State.UNRESOLVED
    assert events(database) == []


@pytest.mark.parametrize(("word", "state"), [("EXPIRED", "failed"), ("SUCCESS", "succeeded")])
def test_a_page_that_ends_after_the_horizon_ends_its_payment_as_usual(
    database: Database, orange: RailPort, stub: StubRail, polls: Polls, word: str, state: str
) -> None:
    charge = confirmed(database, orange, 3613).charge
    with database.transaction() as tx:
        force(tx, charge.id, age=86_401)
    assert about(polls.run(charge)) == 3600
    stub.script(ORANGE.statuses, ORANGE.said(inquiry(charge), word))
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).state == state
    assert len(events(database)) == 1


def test_a_second_confirm_does_not_order_again(
    database: Database, orange: RailPort, stub: StubRail
) -> None:
    first = confirmed(database, orange)
    again = confirm(database, first.charge.payment_intent_id, rail=orange, return_url=BACK)
    assert again == Exists(first.charge)
    assert again.charge.redirect_url == page_of(first)
    assert len(stub.requests(ORANGE.submits)) == 1


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"return_url": None}, "return_url"),
        ({"return_url": "javascript:alert(1)"}, "return_url"),
        ({"payer": "46733123601"}, "takes none"),
        ({"currency": "EUR", "amount": 1050}, "whole"),
        ({"currency": "USD"}, "currency"),
    ],
)
def test_what_the_rail_can_not_take_is_refused_with_nothing_written_or_sent(
    database: Database, orange: RailPort, stub: StubRail, wish: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        confirmed(database, orange, **wish)
    assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0
    assert stub.requests() == []


LOST: dict[str, Answer] = {
    "hang-up": Hangup(),
    "500": Reply(500),
    "html": Reply(200, b"<html></html>"),
    "no token": Reply(201, b'{"payment_url":"https://pay.example/p"}'),
    "no page": Reply(201, b'{"pay_token":"p"}'),
}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("rail_has_it", [True, False])
def test_an_order_whose_answer_was_lost_is_dead_after_the_window_and_not_before(
    database: Database,
    orange: RailPort,
    stub: StubRail,
    polls: Polls,
    name: str,
    rail_has_it: bool,
) -> None:
    stub.script(ORANGE.submits, LOST[name], after=rail_has_it)
    answer = confirmed(database, orange)
    charge = answer.charge
    assert isinstance(answer, Processing)
    assert charge.redirect_url is None
    assert [a.answer for a in read_attempts(database, charge)] == [AttemptClass.UNKNOWN]
    row = polls.run(charge)
    assert row is not None
    assert 50 < row.due_in <= 61
    assert read_charge(database, charge.id) == charge
    with database.transaction() as tx:
        force(tx, charge.id, age=SECOND_LOOK)
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).failure_code is FailureCode.PROVIDER_UNAVAILABLE
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert events(database) == [("payment_intent.payment_failed", intent.id)]
    assert stub.requests(ORANGE.statuses) == []


@pytest.mark.parametrize("attempts", [(), (None,), (AttemptClass.ACCEPTED,)], ids=str)
def test_an_order_without_key_material_is_dead_whatever_its_rows_say(
    database: Database, stub: StubRail, polls: Polls, attempts: tuple[AttemptClass | None, ...]
) -> None:
    charge = in_state(database, State.SUBMITTING)
    for attempt in attempts:
        make_attempt(database, charge, attempt)
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).failure_code is FailureCode.PROVIDER_UNAVAILABLE
    assert [type_ for type_, _ in events(database)] == ["payment_intent.payment_failed"]
    assert stub.requests() == []


def test_an_accepted_order_with_key_material_is_moved_on_as_its_confirm_would_have(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = in_state(database, State.SUBMITTING, provider_ref_extra='{"pay_token": "p"}')
    make_attempt(database, charge, AttemptClass.ACCEPTED)
    assert about(polls.run(charge)) == 0
    after = read_charge(database, charge.id)
    assert (after.state, after.provider_ref_extra) == (State.SUBMITTED, {"pay_token": "p"})
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.REQUIRES_ACTION
    assert stub.requests() == []


def test_key_material_is_merged_key_by_key_and_a_missing_page_blanks_none(
    database: Database,
) -> None:
    charge = in_state(
        database,
        State.SUBMITTING,
        provider_ref_extra='{"pay_token": "old", "kept": "k"}',
        redirect_url="https://pay.example/p",
    )
    with database.transaction() as tx:
        assert charges.submitted(
            tx, charge.id, key_material={"pay_token": "new"}, redirect_url=None
        )
    after = read_charge(database, charge.id)
    assert after.provider_ref_extra == {"pay_token": "new", "kept": "k"}
    assert after.redirect_url == "https://pay.example/p"


def test_no_key_material_is_in_any_line_row_or_event(
    database: Database, orange: RailPort, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = confirmed(database, orange, 3651)
    charge = read_charge(database, answer.charge.id)
    while polls.run(charge) is not None:
        pass
    shown = [repr(answer), repr(charge), *(str(r.__dict__) for r in caplog.records)]
    shown += [str(row) for row in event_rows(database)]
    shown.append(str(scalar(database, "SELECT array_agg(p::text) FROM vpay.provider_requests p")))
    for secret in charge.provider_ref_extra.values():
        assert secret not in "".join(shown)
