"""Answers that come when another hand was faster: what they may still move, and what is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from tests.conftest import Eventually
from tests.payment_kit import (
    events,
    force,
    make_attempt,
    make_charge,
    make_intent,
    momo,
    opened,
    read_attempts,
    read_charge,
    read_intent,
    scalar,
)
from tests.payments.poll_kit import NOT_FOUND, STATUS, Polls, told
from tests.payments.test_confirm import SUBMITS, Before, confirmed
from tests.webhooks.world import HandRun
from vpay_sandbox.httpd import Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.answers import Failed, StatusAnswer, Succeeded
from vpay_tasks.core.charge import AttemptClass, Charge, FailureCode, IntentStatus, State
from vpay_tasks.core.recovery import FailDeadOrder, FailDeclined
from vpay_tasks.handlers.poll_charge import poll_charge
from vpay_tasks.payments import Confirmation, Confirmed, Declined, Processing, poll
from vpay_tasks.payments.settlement import settle
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.rails.port import Inquiry
from vpay_tasks.store import attempts, charges
from vpay_tasks.store.db import Database, connect
from vpay_tasks.transport import Pooled

UNKNOWN_PAYER = "46733123648"
PAID = Succeeded("t-1")
REFUSED = Failed(FailureCode.PAYER_DECLINED, "no")


class Asked(MtnMomo):
    """The real adapter, with something of the test's done between an answer and its use."""

    def __init__(self, real: MtnMomo, meanwhile: Callable[[], object]) -> None:
        self.__dict__.update(real.__dict__)
        self._meanwhile = meanwhile

    def query_status(self, inquiry: Inquiry, *, deadline: float) -> StatusAnswer:
        answer = super().query_status(inquiry, deadline=deadline)
        self._meanwhile()
        return answer


def the_charge(database: Database) -> Charge:
    return read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))


def contradicted(database: Database) -> bool:
    return bool(scalar(database, "SELECT contradicted_at IS NOT NULL FROM vpay.charges"))


def pages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if r.levelno == logging.CRITICAL]


def test_a_late_decline_of_a_charge_that_the_rail_calls_pending_fails_nothing(
    database: Database, rail: MtnMomo, stub: StubRail, polls: Polls
) -> None:
    def meanwhile() -> None:
        charge = the_charge(database)
        with database.transaction() as tx:
            force(tx, charge.id, age=70)
        stub.script(STATUS, told(charge, "PENDING"))
        polls.run(charge)

    answer = confirmed(
        database, make_intent(database), Before(rail, meanwhile), payer=UNKNOWN_PAYER
    )
    assert isinstance(answer, Confirmed)
    assert answer.charge.state is State.PENDING
    assert [a.answer for a in read_attempts(database, answer.charge)] == [AttemptClass.DECLINED]
    assert events(database) == []
    stub.script(STATUS, told(answer.charge, "SUCCESSFUL"))
    assert polls.run(answer.charge) is None
    assert read_charge(database, answer.charge.id).state is State.SUCCEEDED
    assert not contradicted(database)


@pytest.mark.parametrize("other", [None, AttemptClass.UNKNOWN, AttemptClass.ACCEPTED])
def test_a_decline_beside_another_submit_that_may_have_arrived_fails_nothing(
    database: Database, rail: MtnMomo, other: AttemptClass | None
) -> None:
    def meanwhile() -> None:
        make_attempt(database, the_charge(database), other)

    answer = confirmed(
        database, make_intent(database), Before(rail, meanwhile), payer=UNKNOWN_PAYER
    )
    assert isinstance(answer, Processing)
    assert answer.charge.state is State.SUBMITTING
    assert events(database) == []


def test_a_decline_beside_another_decline_fails_the_charge(
    database: Database, rail: MtnMomo
) -> None:
    def meanwhile() -> None:
        make_attempt(
            database, the_charge(database), AttemptClass.DECLINED, FailureCode.PAYER_LIMIT_REACHED
        )

    answer = confirmed(
        database, make_intent(database), Before(rail, meanwhile), payer=UNKNOWN_PAYER
    )
    assert isinstance(answer, Declined)


def test_a_submit_that_is_written_while_a_decline_is_judged_is_seen(
    database: Database, eventually: Eventually
) -> None:
    charge = make_charge(database, age=61)
    make_attempt(database, charge, AttemptClass.DECLINED, FailureCode.INVALID_PAYER)
    won: list[bool] = []
    waits = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )

    def judge() -> None:
        won.append(poll.fail(database, charge, FailDeclined(FailureCode.INVALID_PAYER)))

    thread = threading.Thread(target=judge)
    with database.transaction() as resubmit:
        attempts.open_attempt(resubmit, charge.id)
        thread.start()
        eventually(lambda: scalar(database, waits) == 1)
    thread.join()
    assert won == [False]
    assert read_charge(database, charge.id).state is State.SUBMITTING
    assert events(database) == []


@pytest.mark.parametrize(
    "found", [FailDeadOrder(), FailDeclined(FailureCode.INVALID_PAYER)], ids=["dead", "declined"]
)
def test_a_charge_that_its_late_confirm_moved_on_is_failed_by_no_recovery(
    database: Database, found: FailDeadOrder | FailDeclined
) -> None:
    charge = make_charge(database, age=61)
    make_attempt(database, charge, AttemptClass.DECLINED, FailureCode.INVALID_PAYER)
    with database.transaction() as tx:
        assert charges.submitted(tx, charge.id, key_material={}, redirect_url="https://pay.example")
    assert not poll.fail(database, charge, found)
    assert read_charge(database, charge.id).state is State.SUBMITTED
    assert events(database) == []


@pytest.mark.parametrize(
    ("word", "first", "told_of"),
    [
        ("SUCCESSFUL", REFUSED, True),
        ("FAILED", PAID, True),
        ("SUCCESSFUL", PAID, False),
        ("FAILED", REFUSED, False),
    ],
)
@pytest.mark.parametrize("lease_lost", [False, True])
def test_an_answer_that_lost_to_the_opposite_is_told_once_and_moves_nothing(
    database: Database,
    rail: MtnMomo,
    stub: StubRail,
    polls: Polls,
    caplog: pytest.LogCaptureFixture,
    word: str,
    first: Succeeded | Failed,
    told_of: bool,
    lease_lost: bool,
) -> None:
    charge = make_charge(database, state=State.PENDING)

    def meanwhile() -> None:
        with database.transaction() as tx:
            assert settle(tx, charge, first)
        if lease_lost:
            with database.connection() as connection:
                connection.execute("UPDATE vpay.jobs SET lease = gen_random_uuid()")

    rails = {"mtn_momo": Asked(rail, meanwhile)}
    polls.context.__dict__["rails"] = rails
    stub.script(STATUS, told(charge, word))
    row = polls.run(charge)
    assert (row is not None) == lease_lost
    state = State.SUCCEEDED if first is PAID else State.FAILED
    assert read_charge(database, charge.id).state is state
    assert len(events(database)) == 1
    assert contradicted(database) == told_of
    assert [("contradicts" in page) for page in pages(caplog)] == [True] * told_of


def test_a_denial_that_is_older_than_a_submit_counts_for_nothing(
    database: Database, rail: MtnMomo, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, age=61)
    polls.run(charge)  # has it submitted, for the first time
    stub.script(SUBMITS, Hangup())
    sent = Asked(rail, lambda: polls.resubmit(charge))
    polls.context.__dict__["rails"] = {"mtn_momo": sent}
    stub.script(STATUS, NOT_FOUND)
    polls.run(charge)
    assert len(read_attempts(database, charge)) == 1
    assert read_charge(database, charge.id).not_found_streak == 0
    polls.context.__dict__["rails"] = {"mtn_momo": rail}
    stub.script(STATUS, NOT_FOUND)
    polls.run(charge)
    assert read_charge(database, charge.id).not_found_streak == 1


def test_a_contradiction_is_written_with_the_end_of_the_poll_that_has_seen_it(
    database: Database,
    rail: MtnMomo,
    stub: StubRail,
    polls: Polls,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever is killed between the two would take the rail's word along."""
    charge = make_charge(database, state=State.PENDING)

    def meanwhile() -> None:
        with database.transaction() as tx:
            assert settle(tx, charge, REFUSED)
        with database.connection() as connection:
            connection.execute(
                "CREATE FUNCTION public.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " IF EXISTS (SELECT FROM vpay.charges WHERE contradicted_at IS NULL)"
                " THEN RAISE EXCEPTION 'the poll ends, and nothing is noted'; END IF;"
                " RETURN OLD; END $$"
            )
            connection.execute(
                "CREATE TRIGGER look BEFORE DELETE ON vpay.jobs"
                " FOR EACH ROW EXECUTE FUNCTION public.look()"
            )

    polls.context.__dict__["rails"] = {"mtn_momo": Asked(rail, meanwhile)}
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert contradicted(database)
    assert len(pages(caplog)) == 1


def test_two_polls_that_see_one_contradiction_page_once(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    charge = make_charge(database, state=State.FAILED)
    for _ in range(2):
        poll.compare(database, charge, PAID)
    assert len(pages(caplog)) == 1
    since = scalar(database, "SELECT contradicted_at FROM vpay.charges")
    with database.connection() as connection:
        assert not charges.contradicted(connection, charge.id)
    assert scalar(database, "SELECT contradicted_at FROM vpay.charges") == since


def test_a_declines_own_words_are_kept_for_whoever_settles_it_without_a_number(
    database: Database, rail: MtnMomo, stub: StubRail, polls: Polls
) -> None:
    body = b'{"code":"PAYER_NOT_FOUND","message":"46733123601 has no account"}'
    raw = "PAYER_NOT_FOUND: *** has no account"
    stub.script(SUBMITS, Reply(400, body))
    answer = confirmed(database, make_intent(database), rail)
    assert isinstance(answer, Declined)
    assert scalar(database, "SELECT detail FROM vpay.provider_requests") == raw
    assert scalar(database, "SELECT failure_raw FROM vpay.charges") == raw
    # The same after a crash between the answer and what was to follow.
    charge = make_charge(database, age=61)
    with database.connection() as connection:
        attempt = attempts.open_attempt(connection, charge.id)
        attempts.close_attempt(
            connection,
            attempt,
            AttemptClass.DECLINED,
            code=FailureCode.INVALID_PAYER,
            detail=raw,
        )
    assert polls.run(charge) is None
    query = "SELECT failure_raw FROM vpay.charges WHERE id = %s"
    assert scalar(database, query, charge.id) == raw
    intent = read_intent(database, charge.payment_intent_id)
    assert intent.status is IntentStatus.REQUIRES_PAYMENT_METHOD


def test_an_answer_is_not_written_down_for_ever_behind_a_lock(
    database: Database, rail: MtnMomo
) -> None:
    """Behind a pooler a session has no limits of its own, so only the confirm's hold."""
    blocker = connect(database.url, application="tests")
    answers: list[Confirmation] = []

    def hold() -> None:
        blocker.execute("BEGIN")
        blocker.execute("SELECT id FROM vpay.charges FOR UPDATE")

    intent = make_intent(database)
    with opened(Pooled(database.url)) as unlimited:
        thread = threading.Thread(
            target=lambda: answers.append(confirmed(unlimited, intent, Before(rail, hold)))
        )
        thread.start()
        thread.join(timeout=15)
        blocker.execute("ROLLBACK")
        thread.join()
    blocker.close()
    (answer,) = answers
    assert isinstance(answer, Processing)
    assert read_charge(database, answer.charge.id).state is State.SUBMITTING


class Patient(MtnMomo):
    """The real adapter, that notes until when it may take."""

    def __init__(self, real: MtnMomo) -> None:
        self.__dict__.update(real.__dict__)
        self.until: list[float] = []

    def query_status(self, inquiry: Inquiry, *, deadline: float) -> StatusAnswer:
        self.until.append(deadline)
        return super().query_status(inquiry, deadline=deadline)


def test_a_rail_is_asked_ten_seconds_less_than_the_run_may_take(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    rail = Patient(momo(stub.url))
    polls.context.__dict__["rails"] = {"mtn_momo": rail}
    charge = make_charge(database, state=State.PENDING)
    stub.script(STATUS, told(charge, "PENDING"))
    job = HandRun(database)
    poll_charge(job, polls.context, charge_id=charge.id)
    assert rail.until == [job.deadline - 10.0]
