"""A submit that the rail does not have is sent again: when, how often, and what follows."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable

import pytest

from tests.conftest import Eventually
from tests.payment_kit import (
    APPROVED,
    events,
    force,
    make_attempt,
    make_charge,
    opened,
    read_charge,
    read_intent,
    scalar,
)
from tests.payments.poll_kit import NOT_FOUND, STATUS, Polls, about, told
from tests.payments.resubmit_kit import (
    DAY,
    SUBMITS,
    classes,
    denied,
    resubmitting,
    submits,
    unsent,
)
from tests.webhooks.world import HandRun
from vpay_sandbox.httpd import Answer, Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks import telemetry
from vpay_tasks.config import WindowsTable
from vpay_tasks.core.charge import AttemptClass, Charge, FailureCode, IntentStatus, State
from vpay_tasks.handlers.resubmit_charge import resubmit_charge
from vpay_tasks.payments import poll, resubmit
from vpay_tasks.store.db import Database
from vpay_tasks.store.hints import Hinter


def test_a_charge_that_was_never_sent_is_sent_by_a_job_of_its_own(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = unsent(database)
    assert about(polls.run(charge)) == 10
    assert stub.requests() == []  # the poll itself has sent nothing, and asked nothing
    assert resubmitting(database) == [{"charge_id": charge.id, "seen": 0}]
    assert polls.resubmit(charge) is None
    after = read_charge(database, charge.id)
    assert (after.state, after.polls) == (State.SUBMITTED, 1)
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.PROCESSING
    assert classes(database, charge) == [AttemptClass.ACCEPTED]
    (sent,) = stub.requests(SUBMITS)
    assert sent.request.headers["x-reference-id"] == charge.provider_reference_id
    wish = json.loads(sent.request.body)
    assert (wish["amount"], wish["payer"]["partyId"]) == ("10.00", APPROVED)
    assert polls.run(charge) is None
    assert events(database) == [("payment_intent.succeeded", intent.id)]


def test_the_poll_is_pulled_forward_once_the_rail_has_it(
    dsn: str, stub: StubRail, polls: Polls, eventually: Eventually
) -> None:
    with opened(dsn, hints=Hinter(dsn, application="tests")) as hinting:
        charge = unsent(hinting)
        polls.run(charge)
        polls.context.__dict__["db"] = hinting
        assert polls.resubmit(charge) is None
        eventually(lambda: about(polls.job(charge)) <= 0)


def test_three_not_founds_and_a_minute_are_what_it_takes_to_send_it_again(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, age=61)
    make_attempt(database, charge, AttemptClass.UNKNOWN)
    stub.script(STATUS, NOT_FOUND, times=None)
    assert [about(polls.run(charge)) for _ in range(4)] == [10, 20, 30, 45]
    assert resubmitting(database) == []  # more than three, within a moment
    with database.transaction() as tx:
        force(tx, charge.id, not_found_for=60)
    asked = len(stub.requests(STATUS))
    polls.run(charge)
    assert resubmitting(database) == [{"charge_id": charge.id, "seen": 1}]
    assert len(stub.requests(STATUS)) == asked


@pytest.mark.parametrize(("window", "sent"), [(90, 0), (60, 1)])
def test_the_settings_say_how_long_the_rail_must_have_denied_it(
    database: Database, stub: StubRail, polls: Polls, window: float, sent: int
) -> None:
    charge = denied(database)
    stub.script(STATUS, NOT_FOUND)
    polls.context.__dict__["windows"] = WindowsTable(not_found=window, recovery=50)
    polls.run(charge)
    assert len(resubmitting(database)) == sent


@pytest.mark.parametrize(
    "answer",
    [Reply(202), Hangup(), Reply(400, b'{"code":"PAYER_NOT_FOUND"}'), Reply(403)],
    ids=["accepted", "hang-up", "declined", "refused"],
)
def test_one_job_is_one_call_and_is_done_whatever_the_answer(
    database: Database, stub: StubRail, polls: Polls, answer: Answer
) -> None:
    charge = unsent(database)
    polls.run(charge)
    stub.script(SUBMITS, answer)
    assert polls.resubmit(charge) is None
    assert submits(stub) == [charge.provider_reference_id]
    # The same job once more, as after a settle that was lost.
    assert resubmit_charge(HandRun(database), polls.context, charge_id=charge.id, seen=0)
    assert submits(stub) == [charge.provider_reference_id]
    assert len(classes(database, charge)) == 1


def test_after_a_resubmit_one_not_found_is_no_reason_for_another(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = denied(database)
    polls.run(charge)
    stub.script(SUBMITS, Hangup())
    assert polls.resubmit(charge) is None
    after = read_charge(database, charge.id)
    assert (after.not_found_streak, after.state) == (0, State.SUBMITTING)
    stub.script(STATUS, NOT_FOUND, times=None)
    for _ in range(3):
        polls.run(charge)
    assert resubmitting(database) == []
    assert read_charge(database, charge.id).not_found_streak == 3


def test_a_not_found_from_before_a_resubmit_does_not_count_against_it(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = denied(database)
    assert poll.resubmit(database, poll.look(database, charge.id))
    stub.script(STATUS, NOT_FOUND)
    with stub.hold(STATUS) as hold:
        thread = threading.Thread(target=polls.run, args=(charge,))
        thread.start()
        hold.wait()
        stub.script(SUBMITS, Hangup())
        polls.resubmit(charge)
    thread.join()
    assert read_charge(database, charge.id).not_found_streak == 0


def test_a_resubmit_that_stands_is_not_asked_for_twice_and_the_rail_is_asked_meanwhile(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = unsent(database)
    rows = [about(polls.run(charge)) for _ in range(3)]
    assert rows == [10, 20, 30]
    assert resubmitting(database) == [{"charge_id": charge.id, "seen": 0}]
    assert len(stub.requests(STATUS)) == 2
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert polls.resubmit(charge) is None
    assert submits(stub) == []


def test_a_decline_beside_an_unknown_submit_fails_nothing(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = denied(database)
    polls.run(charge)
    stub.script(SUBMITS, Reply(400, b'{"code":"PAYER_NOT_FOUND"}'))
    assert polls.resubmit(charge) is None
    assert classes(database, charge) == [None, AttemptClass.DECLINED]
    assert read_charge(database, charge.id).state is State.SUBMITTING
    assert events(database) == []
    # The first prompt was there all the time, and the payer says yes.
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).state is State.SUCCEEDED


def test_a_decline_of_the_only_submit_fails_the_charge_as_its_confirm_would_have(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = unsent(database)
    polls.run(charge)
    stub.script(SUBMITS, Reply(400, b'{"code":"PAYER_NOT_FOUND"}'))
    assert polls.resubmit(charge) is None
    assert read_charge(database, charge.id).failure_code is FailureCode.INVALID_PAYER
    assert events(database) == [("payment_intent.payment_failed", charge.payment_intent_id)]


def test_a_duplicate_is_the_rail_having_it(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = denied(database)
    rail = polls.context.rails["mtn_momo"]
    order = resubmit.read(database, polls.context.rails, charge.id)
    assert order is not None
    rail.submit(order.order, deadline=HandRun(database).deadline)  # what the first one did
    polls.run(charge)
    assert polls.resubmit(charge) is None
    assert read_charge(database, charge.id).state is State.SUBMITTED
    assert polls.run(charge) is None
    assert submits(stub) == [charge.provider_reference_id] * 2


def test_only_submits_beyond_the_first_are_exposure(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    before = telemetry.counts().get("exposure", 0)
    for charge in (unsent(database), denied(database)):
        polls.run(charge)
        polls.resubmit(charge)
    assert telemetry.counts()["exposure"] - before == 1


@pytest.mark.parametrize("make", [unsent, denied])
def test_past_the_horizon_the_resubmit_is_written_first_and_the_charge_is_unresolved(
    database: Database, stub: StubRail, polls: Polls, make: Callable[..., Charge]
) -> None:
    charge = make(database, age=DAY + 1)
    row = polls.run(charge)
    assert about(row) == 3600
    assert row is not None
    assert row.last_error is not None
    assert row.last_error.startswith("Exhausted:")
    assert len(resubmitting(database)) == 1
    assert read_charge(database, charge.id).state is State.UNRESOLVED
    assert polls.resubmit(charge) is None
    assert submits(stub) == []
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert events(database) == [("payment_intent.succeeded", charge.payment_intent_id)]


def test_no_payer_is_in_a_line_a_row_or_a_repr_of_a_resubmit(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for reply in (Hangup(), Reply(400, b'{"code":"46733123601"}'), Reply(202)):
        charge = unsent(database)
        polls.run(charge)
        stub.script(SUBMITS, reply)
        submit = resubmit.read(database, polls.context.rails, charge.id)
        assert APPROVED not in repr(submit)
        polls.resubmit(charge)
    shown = "".join(str(r.__dict__) for r in caplog.records)
    for table in ("jobs", "charges", "provider_requests"):
        shown += str(scalar(database, f"SELECT array_agg(t::text) FROM vpay.{table} t"))
    assert APPROVED not in shown
