"""confirm: what it answers, and which rows it leaves wherever it dies."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from tests.conftest import Eventually
from tests.payment_kit import (
    APPROVED,
    RING,
    events,
    make_intent,
    momo,
    opened,
    read_attempts,
    read_charge,
    read_intent,
    scalar,
)
from vpay_sandbox.httpd import Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import WindowsTable
from vpay_tasks.core.answers import Failed, SubmitAnswer, Succeeded
from vpay_tasks.core.charge import AttemptClass, FailureCode, IntentStatus, PaymentIntent, State
from vpay_tasks.core.kinds import poll_key
from vpay_tasks.errors import (
    Storage,
)
from vpay_tasks.payments import (
    ApproveOnPhone,
    Confirmation,
    Confirmed,
    Declined,
    Exists,
    Processing,
    confirm,
)
from vpay_tasks.payments.settlement import settle
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.rails.port import Order
from vpay_tasks.store.db import Database, connect
from vpay_tasks.store.hints import Hinter

SUBMITS = "*/requesttopay"


class Before(MtnMomo):
    """The real adapter, with something of the test's done right before a submit."""

    def __init__(self, real: MtnMomo, meanwhile: Callable[[], object]) -> None:
        self.__dict__.update(real.__dict__)
        self._meanwhile = meanwhile

    def submit(self, order: Order, *, deadline: float) -> SubmitAnswer:
        self._meanwhile()
        return super().submit(order, deadline=deadline)


def confirmed(
    database: Database, intent: PaymentIntent, rail: MtnMomo, **more: Any
) -> Confirmation:
    return confirm(database, intent.id, rail=rail, **{"payer": APPROVED, **more})


def poll_waits(database: Database, charge_id: str) -> float:
    """Seconds until the poll of a charge is due."""
    query = "SELECT EXTRACT(EPOCH FROM run_at - now())::float8 FROM vpay.jobs WHERE dedupe_key = %s"
    return float(scalar(database, query, poll_key(charge_id)))


def test_a_push_payment_is_confirmed_and_its_poll_waits(
    database: Database, rail: MtnMomo, stub: StubRail
) -> None:
    intent = make_intent(database, 1050)
    answer = confirmed(database, intent, rail, payer="+46 (733) 123-601")
    assert isinstance(answer, Confirmed)
    assert answer.next_action == ApproveOnPhone()
    charge = read_charge(database, answer.charge.id)
    assert answer.charge == charge
    assert charge.state is State.SUBMITTED
    assert read_intent(database, intent.id).status is IntentStatus.PROCESSING
    assert [a.answer for a in read_attempts(database, charge)] == [AttemptClass.ACCEPTED]
    assert 40 < poll_waits(database, charge.id) <= 45
    sent = json.loads(stub.requests(SUBMITS)[0].request.body)
    assert sent["amount"] == "10.50"
    assert sent["externalId"] == charge.provider_reference_id
    assert sent["payer"]["partyId"] == APPROVED
    assert events(database) == []


def test_the_poll_is_pulled_forward_once_the_rail_has_it(
    dsn: str, rail: MtnMomo, eventually: Eventually
) -> None:
    with opened(dsn, hints=Hinter(dsn, application="tests")) as database:
        answer = confirmed(database, make_intent(database), rail)
        eventually(lambda: poll_waits(database, answer.charge.id) <= 0)


def test_a_payers_number_is_stored_encrypted_and_shown_masked(
    database: Database, rail: MtnMomo
) -> None:
    charge = confirmed(database, make_intent(database), rail).charge
    assert charge.payer_ref is not None
    assert APPROVED not in charge.payer_ref
    assert RING.open(charge.payer_ref) == APPROVED
    assert charge.payer_masked == "467******01"
    assert "467" not in repr(charge)


def test_a_second_confirm_answers_with_the_first_ones_charge(
    database: Database, rail: MtnMomo, stub: StubRail
) -> None:
    intent = make_intent(database)
    first = confirmed(database, intent, rail)
    second = confirmed(database, intent, rail, payer="46733123602")
    assert second == Exists(first.charge)
    assert len(stub.requests(SUBMITS)) == 1


def test_of_two_confirms_at_once_one_charges_and_the_other_is_told(
    database: Database, rail: MtnMomo, stub: StubRail
) -> None:
    intent = make_intent(database)
    barrier = threading.Barrier(4)
    answers: list[Confirmation] = []

    def one() -> None:
        barrier.wait()
        answers.append(confirmed(database, intent, rail))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = sorted(type(answer).__name__ for answer in answers)
    assert kinds == ["Confirmed", "Exists", "Exists", "Exists"]
    assert len({answer.charge.id for answer in answers}) == 1
    assert len(stub.requests(SUBMITS)) == 1


def test_a_documented_decline_fails_the_charge_and_tells_the_merchant(
    database: Database, rail: MtnMomo
) -> None:
    intent = make_intent(database)
    answer = confirmed(database, intent, rail, payer="46733123648")
    assert isinstance(answer, Declined)
    assert answer.code is FailureCode.INVALID_PAYER
    assert answer.charge.state is State.FAILED
    after = read_intent(database, intent.id)
    assert after.status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert after.last_payment_error is FailureCode.INVALID_PAYER
    assert events(database) == [("payment_intent.payment_failed", intent.id)]
    attempt = read_attempts(database, answer.charge)[0]
    assert (attempt.answer, attempt.code) == (AttemptClass.DECLINED, FailureCode.INVALID_PAYER)
    assert confirmed(database, intent, rail) == Exists(answer.charge)


@pytest.mark.parametrize(
    "unhelpful",
    [
        Hangup(),
        Reply(500, b'{"code":"INTERNAL_PROCESSING_ERROR"}'),
        Reply(503),
        Reply(429),
        Reply(403),
        Reply(200, b"<html>Rejected</html>"),
        Reply(202, b'{"status":"SUCCESSFUL"}'),
        Reply(302, headers={"Location": "/elsewhere"}),
        Reply(400, b'{"code":"SERVICE_UNAVAILABLE"}'),
        Reply(400, b'{"code":"NEVER_HEARD_OF"}'),
        Reply(400, b"\xff\x00"),
        Reply(409, b'{"code":"SOMETHING_ELSE"}'),
        Reply(500, b'{"code":"INVALID_CURRENCY"}'),
    ],
    ids=lambda reply: f"{getattr(reply, 'status', 'hang-up')}",
)
def test_whatever_else_is_answered_the_rail_may_have_it(
    database: Database, rail: MtnMomo, stub: StubRail, unhelpful: Reply | Hangup
) -> None:
    stub.script(SUBMITS, unhelpful)
    intent = make_intent(database)
    answer = confirmed(database, intent, rail)
    assert isinstance(answer, Processing)
    assert answer.charge.state is State.SUBMITTING
    assert read_intent(database, intent.id).status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert [a.answer for a in read_attempts(database, answer.charge)] == [AttemptClass.UNKNOWN]
    assert events(database) == []
    assert 40 < poll_waits(database, answer.charge.id) <= 45


def test_a_duplicate_of_our_own_reference_is_the_rail_having_it(
    database: Database, rail: MtnMomo
) -> None:
    answer = confirmed(database, make_intent(database), rail, payer="46733123647")
    assert isinstance(answer, Confirmed)


class Died(BaseException):
    """The process is gone: nothing catches it."""


def test_dying_before_the_submit_leaves_a_charge_with_a_reference_and_an_unanswered_row(
    database: Database, rail: MtnMomo, stub: StubRail
) -> None:
    intent = make_intent(database)

    def die() -> None:
        raise Died

    with pytest.raises(Died):
        confirmed(database, intent, Before(rail, die))
    standing = confirmed(database, intent, rail)
    assert isinstance(standing, Exists)
    assert standing.charge.state is State.SUBMITTING
    assert len(standing.charge.provider_reference_id) == 36
    assert [a.answer for a in read_attempts(database, standing.charge)] == [None]
    assert 40 < poll_waits(database, standing.charge.id) <= 45
    assert stub.requests(SUBMITS) == []


def test_the_charge_and_its_attempt_are_committed_before_the_rail_is_called(
    database: Database, rail: MtnMomo
) -> None:
    seen: list[tuple[int, int, int]] = []

    def look() -> None:
        seen.append(
            (
                scalar(database, "SELECT count(*) FROM vpay.charges WHERE state = 'submitting'"),
                scalar(database, "SELECT count(*) FROM vpay.provider_requests"),
                scalar(
                    database,
                    "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in trans%%'"
                    " AND datname = current_database()",
                ),
            )
        )

    confirmed(database, make_intent(database), Before(rail, look))
    assert seen == [(1, 1, 0)]


def test_a_settlement_that_was_faster_than_the_answer_is_what_is_answered(
    database: Database, rail: MtnMomo
) -> None:
    intent = make_intent(database)

    def meanwhile() -> None:
        found = read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))
        with database.transaction() as tx:
            assert settle(tx, found, Succeeded("t-1"))

    answer = confirmed(database, intent, Before(rail, meanwhile))
    assert isinstance(answer, Confirmed)
    assert answer.charge.state is State.SUCCEEDED
    assert read_intent(database, intent.id).status is IntentStatus.SUCCEEDED
    assert events(database) == [("payment_intent.succeeded", intent.id)]


def test_a_late_acceptance_does_not_revive_a_failed_charge(
    database: Database, rail: MtnMomo
) -> None:
    def meanwhile() -> None:
        found = read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))
        with database.transaction() as tx:
            assert settle(tx, found, Failed(FailureCode.PAYER_TIMEOUT, ""))

    answer = confirmed(database, make_intent(database), Before(rail, meanwhile))
    assert isinstance(answer, Declined)
    assert answer.code is FailureCode.PAYER_TIMEOUT
    assert len(events(database)) == 1


def test_with_the_deadline_spent_nothing_is_sent_and_nothing_claims_that_it_was(
    database: Database, rail: MtnMomo, stub: StubRail
) -> None:
    readings = iter([0.0, 0.0, 0.0, 46.0])
    answer = confirmed(database, make_intent(database), rail, clock=lambda: next(readings))
    assert isinstance(answer, Processing)
    assert stub.requests() == []
    assert read_attempts(database, answer.charge) == []


def test_the_deadline_ends_a_submit_that_is_not_answered(
    database: Database, stub: StubRail
) -> None:
    windows = WindowsTable(submit_deadline=0.5, recovery=60)
    with stub.hold(SUBMITS), opened(database.url, windows=windows) as hasty:
        answer = confirmed(hasty, make_intent(database), momo(stub.url, windows=windows))
    assert isinstance(answer, Processing)
    assert [a.answer for a in read_attempts(database, answer.charge)] == [AttemptClass.UNKNOWN]


def test_the_deadline_ends_a_wait_for_the_intents_lock_and_nothing_is_written(
    database: Database, rail: MtnMomo, stub: StubRail
) -> None:
    intent = make_intent(database)
    windows = WindowsTable(submit_deadline=0.2)
    with database.transaction() as other:
        other.execute("SELECT id FROM vpay.payment_intents FOR UPDATE")
        with opened(database.url, windows=windows) as hasty, pytest.raises(Storage):
            confirmed(hasty, intent, rail)
    assert scalar(database, "SELECT count(*) FROM vpay.charges") == 0
    assert scalar(database, "SELECT count(*) FROM vpay.jobs") == 0
    assert stub.requests() == []


def test_losing_the_database_after_the_submit_is_processing(
    database: Database, rail: MtnMomo, caplog: pytest.LogCaptureFixture
) -> None:
    def cut() -> None:
        blocker.execute("BEGIN")
        blocker.execute("LOCK TABLE vpay.provider_requests IN ACCESS EXCLUSIVE MODE")

    blocker = connect(database.url, application="tests")
    intent = make_intent(database)
    with caplog.at_level(logging.INFO):
        answer = confirmed(database, intent, Before(rail, cut))
    blocker.execute("ROLLBACK")
    blocker.close()
    assert isinstance(answer, Processing)
    assert read_charge(database, answer.charge.id).state is State.SUBMITTING
    assert [a.answer for a in read_attempts(database, answer.charge)] == [None]
    assert "a confirm lost its database; the poll goes on" in caplog.messages


def test_our_own_refused_credentials_page_and_the_charge_waits(
    database: Database, stub: StubRail, caplog: pytest.LogCaptureFixture
) -> None:
    rail = momo(stub.url, api_key=SecretStr("canary-api-key"))
    answer = confirmed(database, make_intent(database), rail)
    assert isinstance(answer, Processing)
    line = next(r for r in caplog.records if "submit was not answered" in r.message)
    assert line.levelno == logging.CRITICAL
    assert line.__dict__["fields"]["alert"] is True
    assert "canary" not in caplog.text + str(line.__dict__)
    assert "canary" not in scalar(database, "SELECT detail FROM vpay.provider_requests")
