"""What keeps a payer from being asked for a payment that is over, or told as unpaid."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from tests.payment_kit import (
    APPROVED,
    events,
    force,
    make_intent,
    read_charge,
    read_intent,
    scalar,
)
from tests.payments.poll_kit import STATUS, Polls, about, told
from tests.payments.resubmit_kit import SUBMITS, classes, submits
from tests.payments.test_confirm import Before, confirmed
from tests.rails.benches import ORANGE
from vpay_sandbox.httpd import Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.answers import Failed
from vpay_tasks.core.charge import AttemptClass, Charge, FailureCode, IntentStatus, State
from vpay_tasks.payments import Confirmation, Declined, Processing, confirm
from vpay_tasks.payments.settlement import settle
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.store.db import Database

NO_FUNDS = Reply(400, b'{"code":"NOT_ENOUGH_FUNDS"}')


def the_charge(database: Database) -> Charge:
    return read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))


def suspended(database: Database, once_written: Callable[[Charge], None]) -> Callable[[], float]:
    """A clock that stands still, as a suspended machine's does, while others do something
    about the charge that it had just written."""
    stands = time.monotonic()
    slept: list[Charge] = []

    def clock() -> float:
        if not slept and scalar(database, "SELECT count(*) FROM vpay.charges"):
            slept.append(the_charge(database))
            once_written(slept[0])
        return stands

    return clock


def test_a_confirm_that_wakes_after_its_charge_was_submitted_and_failed_sends_nothing(
    database: Database, stub: StubRail, rail: MtnMomo, polls: Polls
) -> None:
    def recovery(charge: Charge) -> None:
        with database.transaction() as tx:
            force(tx, charge.id, age=61)
        polls.run(charge)
        stub.script(SUBMITS, NO_FUNDS)
        assert polls.resubmit(charge) is None

    intent = make_intent(database)
    clock = suspended(database, recovery)
    answer = confirm(database, intent.id, rail=rail, payer=APPROVED, clock=clock)
    assert isinstance(answer, Declined)
    assert classes(database, answer.charge) == [AttemptClass.DECLINED]
    assert len(submits(stub)) == 1
    assert read_intent(database, intent.id).status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert len(events(database)) == 1


def test_a_confirm_that_wakes_after_recovery_has_submitted_leaves_it_to_recovery(
    database: Database, stub: StubRail, rail: MtnMomo, polls: Polls
) -> None:
    def recovery(charge: Charge) -> None:
        with database.transaction() as tx:
            force(tx, charge.id, age=61)
        polls.run(charge)
        stub.script(SUBMITS, Hangup())
        assert polls.resubmit(charge) is None

    clock = suspended(database, recovery)
    answer = confirm(database, make_intent(database).id, rail=rail, payer=APPROVED, clock=clock)
    assert isinstance(answer, Processing)
    assert classes(database, answer.charge) == [AttemptClass.UNKNOWN]
    assert len(submits(stub)) == 1


def test_a_charge_that_failed_while_the_rail_accepted_it_is_asked_about_once_more(
    database: Database,
    stub: StubRail,
    rail: MtnMomo,
    polls: Polls,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def meanwhile() -> None:
        charge = the_charge(database)
        with database.transaction() as tx:
            force(tx, charge.id, age=61)
        stub.script(STATUS, told(charge, "FAILED", reason="EXPIRED"))
        assert polls.run(charge) is None

    answer = confirmed(database, make_intent(database), Before(rail, meanwhile))
    assert isinstance(answer, Declined)
    assert classes(database, answer.charge) == [AttemptClass.ACCEPTED]
    assert about(polls.job(answer.charge)) == 3_600
    stub.script(STATUS, told(answer.charge, "SUCCESSFUL"))
    assert polls.run(answer.charge) is None
    pages = [r.message for r in caplog.records if r.levelno == logging.CRITICAL]
    assert len(pages) == 1
    assert "contradicts a settled charge" in pages[0]
    assert read_charge(database, answer.charge.id).state is State.FAILED
    assert len(events(database)) == 1


RUNS = (
    "lease = gen_random_uuid(), locked_by = 'w', locked_at = now(), started_at = now(),"
    " lease_until = now() + interval '1 h'"
)


@pytest.mark.parametrize("row", ["run_at = now()", RUNS])
def test_a_poll_that_has_failed_the_charge_and_not_settled_its_job_comes_back_for_it(
    database: Database, rail: MtnMomo, row: str
) -> None:
    def meanwhile() -> None:
        with database.transaction() as tx:
            assert settle(tx, the_charge(database), Failed(FailureCode.PAYER_TIMEOUT, ""))
            tx.execute(f"UPDATE vpay.jobs SET {row}".encode())

    answer = confirmed(database, make_intent(database), Before(rail, meanwhile))
    assert isinstance(answer, Declined)
    query = "SELECT payload ->> 'recheck', started_at IS NULL OR poked = '1 h' FROM vpay.jobs"
    with database.connection() as connection:
        assert connection.execute(query.encode()).fetchall() == [("true", True)]


def test_an_order_that_was_accepted_too_late_has_no_page_and_is_not_asked_about(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    answers: list[Confirmation] = []
    intent = make_intent(database, 3601, ORANGE.currency)

    def work() -> None:
        wish = ORANGE.order()
        rail = ORANGE.rail(stub)
        answers.append(confirm(database, intent.id, rail=rail, return_url=wish.return_url))

    with stub.hold(ORANGE.submits) as hold:
        thread = threading.Thread(target=work)
        thread.start()
        hold.wait()
        charge = the_charge(database)
        with database.transaction() as tx:
            force(tx, charge.id, age=61)
        assert polls.run(charge) is None
    thread.join()
    (answer,) = answers
    assert isinstance(answer, Declined)
    assert answer.charge.redirect_url is None
    assert classes(database, charge) == [AttemptClass.ACCEPTED]
    assert polls.job(charge) is None
