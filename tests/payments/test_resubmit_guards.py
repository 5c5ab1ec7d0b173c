"""When a resubmit sends nothing: another was faster, its time is over, something is missing."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from tests.conftest import Eventually
from tests.payment_kit import (
    force,
    make_attempt,
    momo,
    opened,
    read_charge,
    scalar,
)
from tests.payments.poll_kit import Polls, about
from tests.payments.resubmit_kit import (
    SUBMITS,
    WAITING,
    classes,
    denied,
    submits,
    unsent,
)
from tests.webhooks.world import HandRun
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import KeysTable, WindowsTable
from vpay_tasks.core.answers import SubmitAnswer
from vpay_tasks.core.charge import AttemptClass, FailureCode, State
from vpay_tasks.handlers.resubmit_charge import resubmit_charge
from vpay_tasks.payments import submission
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.rails.port import Order
from vpay_tasks.store import charges
from vpay_tasks.store.db import Database


def test_a_run_that_died_over_its_call_is_not_repeated(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = denied(database)
    polls.run(charge)
    assert submission.begin(database, charge, 1, lambda: 45.0) is not None  # … and it died
    assert polls.resubmit(charge) is None
    assert stub.requests() == []
    assert classes(database, charge) == [None, None]
    assert read_charge(database, charge.id).state is State.SUBMITTING


@pytest.mark.parametrize(
    "state",
    [State.SUBMITTED, State.PENDING, State.UNRESOLVED, State.SUCCEEDED, State.FAILED],
)
def test_a_charge_that_has_gone_on_is_not_sent_again(
    database: Database, stub: StubRail, polls: Polls, state: State
) -> None:
    charge = unsent(database)
    polls.run(charge)
    with database.transaction() as tx:
        code = FailureCode.PAYER_TIMEOUT.value if state is State.FAILED else None
        force(tx, charge.id, state=state.value, failure_code=code)
    assert polls.resubmit(charge) is None
    assert stub.requests() == []
    assert classes(database, charge) == []


def test_a_charge_that_goes_on_while_its_resubmit_looks_is_not_sent_again(
    database: Database, stub: StubRail, polls: Polls, eventually: Eventually
) -> None:
    charge = unsent(database)
    polls.run(charge)
    thread = threading.Thread(target=polls.resubmit, args=(charge,))
    with database.transaction() as tx:
        assert charges.submitted(tx, charge.id, key_material={}, redirect_url=None)
        thread.start()
        eventually(lambda: scalar(database, WAITING) == 1)
    thread.join()
    assert stub.requests() == []
    assert classes(database, charge) == []


def test_a_submit_that_its_poll_did_not_know_of_ends_the_resubmit(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = unsent(database)
    polls.run(charge)
    make_attempt(database, charge, None)  # a confirm that was stopped, and woke
    assert polls.resubmit(charge) is None
    assert stub.requests() == []


class Patient(MtnMomo):
    """The real adapter, that notes until when it may take."""

    def __init__(self, real: MtnMomo) -> None:
        self.__dict__.update(real.__dict__)
        self.until: list[float] = []

    def submit(self, order: Order, *, deadline: float) -> SubmitAnswer:
        self.until.append(deadline)
        return super().submit(order, deadline=deadline)


def test_its_deadline_begins_before_the_charge_is_looked_at_and_waits_count(
    database: Database, stub: StubRail, polls: Polls, eventually: Eventually
) -> None:
    charge = unsent(database)
    polls.run(charge)
    rail = Patient(momo(stub.url))
    polls.context.__dict__["rails"] = {"mtn_momo": rail}
    thread = threading.Thread(target=polls.resubmit, args=(charge,))
    with database.transaction() as other:
        charges.lock(other, charge.id)
        thread.start()
        eventually(lambda: scalar(database, WAITING) == 1)
        looking = time.monotonic()
    thread.join()
    (until,) = rail.until
    assert looking < until <= looking + 45


def test_the_deadline_ends_a_wait_for_the_charges_lock_and_nothing_is_written(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = unsent(database)
    polls.run(charge)
    polls.context.__dict__["windows"] = WindowsTable(submit_deadline=0.2)
    with database.transaction() as other:
        charges.lock(other, charge.id)
        row = polls.resubmit(charge)
    assert row is not None
    assert (row.failures, row.parked) == (1, False)
    assert stub.requests() == []
    assert classes(database, charge) == []


def test_a_payer_that_can_not_be_read_is_told_before_anything_is_written(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    charge = unsent(database)
    polls.run(charge)
    with opened(database.url, keys=KeysTable()) as keyless:
        polls.context.__dict__["db"] = keyless
        row = polls.resubmit(charge)
    assert (about(row), row is not None and row.parked) == (3600, False)
    assert logging.CRITICAL in [r.levelno for r in caplog.records]
    assert classes(database, charge) == []
    assert stub.requests() == []


def test_a_database_that_is_lost_after_the_call_leaves_an_unanswered_row_and_no_second_call(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = unsent(database)
    polls.run(charge)
    with database.transaction() as blocker:
        with stub.hold(SUBMITS) as hold:
            thread = threading.Thread(target=polls.resubmit, args=(charge,))
            thread.start()
            hold.wait()
            blocker.execute("LOCK TABLE vpay.provider_requests IN ACCESS EXCLUSIVE MODE")
        thread.join()
    row = polls.resubmission(charge)
    assert row is not None
    assert (row.failures, row.parked) == (1, False)
    assert classes(database, charge) == [None]
    assert polls.resubmit(charge) is None
    assert submits(stub) == [charge.provider_reference_id]


def test_of_two_runs_of_one_job_at_once_one_sends(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = unsent(database)
    barrier = threading.Barrier(4)

    def one() -> None:
        barrier.wait()
        resubmit_charge(HandRun(database), polls.context, charge_id=charge.id, seen=0)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert submits(stub) == [charge.provider_reference_id]
    assert classes(database, charge) == [AttemptClass.ACCEPTED]
