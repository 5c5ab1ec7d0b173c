"""Polls in trouble: nonsense, outages, the horizon, contradictions, races."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.payment_kit import (
    event_rows,
    events,
    force,
    make_charge,
    make_intent,
    read_charge,
    scalar,
)
from tests.payments.poll_kit import NOT_FOUND, STATUS, Polls, about, replies, told
from vpay_sandbox.httpd import Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core import kinds
from vpay_tasks.core.answers import Succeeded
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.payments.settlement import settle
from vpay_tasks.store import intents, jobs
from vpay_tasks.store.db import Database


def test_an_outage_slows_polling_down_and_never_speeds_it_up(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTED)
    stub.script(STATUS, Reply(503), times=None)
    rows = [polls.run(charge) for _ in range(5)]
    # The poll ladder says 10, 20, 30, 45, 60; the error ladder 5, 15, 60, 300, 900.
    rungs = [10, 20, 60, 300, 900]
    for row, rung in zip(rows, rungs, strict=True):
        assert row is not None
        assert rung - 2 <= row.due_in <= rung * 1.1


def test_a_mismatch_and_refused_credentials_alert(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    charge = make_charge(database, state=State.SUBMITTED)
    stub.script(STATUS, told(charge, "SUCCESSFUL", amount="1.23"))
    polls.run(charge)
    stub.script(STATUS, Reply(403))
    polls.run(charge)
    failed = [r for r in caplog.records if r.message == "a job failed"]
    assert [r.levelno for r in failed] == [logging.ERROR, logging.CRITICAL]
    assert all(r.__dict__["fields"]["alert"] for r in failed)


def test_a_401_is_asked_again_once_with_a_fresh_token(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTED)
    stub.script(STATUS, told(charge, "PENDING"))
    polls.run(charge)
    stub.expire_tokens()
    stub.script(STATUS, Reply(401))
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert len(stub.requests("*/token/")) == 2


DAY = 86_400.0


def test_refused_credentials_page_past_the_horizon_too(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    charge = make_charge(database, state=State.UNRESOLVED, age=DAY + 1)
    for reply in (Reply(403), Reply(503)):
        stub.script(STATUS, reply)
        assert about(polls.run(charge)) == 3600
    told_of = [r for r in caplog.records if r.__dict__["fields"].get("alert")]
    assert [(r.levelno, r.message) for r in told_of] == [
        (logging.CRITICAL, "an overdue charge can't be asked for"),
        (logging.ERROR, "a job failed"),
        (logging.ERROR, "a job failed"),
    ]


@pytest.mark.parametrize("state", [State.SUBMITTED, State.PENDING])
def test_past_the_horizon_a_charge_is_unresolved_asked_hourly_and_alerted_each_time(
    database: Database,
    stub: StubRail,
    polls: Polls,
    state: State,
    caplog: pytest.LogCaptureFixture,
) -> None:
    charge = make_charge(database, state=state, age=DAY + 1)
    stub.script(STATUS, told(charge, "PENDING"))
    stub.script(STATUS, Reply(503))
    stub.script(STATUS, NOT_FOUND)
    for _ in range(3):
        row = polls.run(charge)
        assert about(row) == 3600
        assert read_charge(database, charge.id).state is State.UNRESOLVED
    failed = [r for r in caplog.records if r.message == "a job failed"]
    assert [r.levelno for r in failed] == [logging.ERROR] * 3
    assert all(r.__dict__["fields"]["alert"] for r in failed)
    assert events(database) == []


def test_a_success_at_hour_thirty_settles_with_the_ordinary_event(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.UNRESOLVED, age=30 * 3600, polls=10**6)
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert events(database) == [("payment_intent.succeeded", charge.payment_intent_id)]


def test_a_submit_that_was_never_answered_is_unresolved_past_the_horizon_too(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.SUBMITTING, age=DAY + 1)
    stub.script(STATUS, Hangup())
    assert about(polls.run(charge)) == 3600
    assert read_charge(database, charge.id).state is State.UNRESOLVED


def test_a_million_polls_have_a_next_one(database: Database, stub: StubRail, polls: Polls) -> None:
    charge = make_charge(database, state=State.PENDING, polls=10**6)
    stub.script(STATUS, told(charge, "PENDING"))
    assert about(polls.run(charge)) == 900


def recheck(database: Database, charge: Charge) -> None:
    """A poll as a callback about a failed charge leaves it."""
    with database.transaction() as tx:
        jobs.enqueue(
            tx, kinds.POLL_CHARGE, {"charge_id": charge.id}, dedupe_key=kinds.poll_key(charge.id)
        )
        tx.execute(
            "UPDATE vpay.jobs SET payload = payload || '{\"recheck\": true}' WHERE dedupe_key = %s",
            (kinds.poll_key(charge.id),),
        )


def test_a_failed_charge_that_the_rail_now_calls_paid_moves_nothing_and_pages_once(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    charge = make_charge(database, state=State.FAILED)
    recheck(database, charge)
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert read_charge(database, charge.id).state is State.FAILED
    noted = "SELECT contradicted_at IS NOT NULL FROM vpay.charges WHERE id = %s"
    assert scalar(database, noted, charge.id)
    pages = [r for r in caplog.records if "contradicts" in r.message]
    assert [r.levelno for r in pages] == [logging.CRITICAL]
    assert events(database) == []


def test_whatever_a_recheck_finds_it_is_one_ask(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    charge = make_charge(database, state=State.FAILED, age=DAY * 2)
    learnt = {
        "failed": told(charge, "FAILED"),
        "pending": told(charge, "PENDING"),
        "not found": NOT_FOUND,
        **replies(charge),
    }
    for asks, (name, reply) in enumerate(learnt.items(), start=1):
        recheck(database, charge)
        stub.script(STATUS, reply)
        assert polls.run(charge) is None, name
        assert read_charge(database, charge.id) == charge, name
        assert len(stub.requests(STATUS)) == asks, name
    told_of = {r.levelno for r in caplog.records if r.__dict__["fields"].get("alert")}
    # A mismatch alerts, refused credentials page, an outage is only said.
    assert told_of == {logging.ERROR, logging.CRITICAL}
    assert events(database) == []


@pytest.mark.parametrize(
    "rail", ["orange_money", "gone"], ids=["its token is lost", "its rail is gone"]
)
def test_a_recheck_of_what_can_not_be_asked_for_ends(
    database: Database,
    stub: StubRail,
    polls: Polls,
    rail: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    charge = make_charge(database, state=State.FAILED, provider_code=rail)
    recheck(database, charge)
    assert polls.run(charge) is None
    assert stub.requests() == []
    assert caplog.messages == ["a failed charge could not be asked for again"]


def test_a_poll_that_runs_twice_settles_once(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.PENDING)
    stub.script(STATUS, told(charge, "SUCCESSFUL"), times=None)
    with stub.hold(STATUS) as hold:
        thread = threading.Thread(target=polls.run, args=(charge,))
        thread.start()
        hold.wait()
        # Meanwhile another hand settles it.
        with database.transaction() as tx:
            assert settle(tx, charge, Succeeded("first"))
    thread.join()
    assert polls.job(charge) is None
    assert read_charge(database, charge.id).provider_txn_id == "first"
    assert len(events(database)) == 1


def test_a_charge_that_is_settled_while_its_rail_says_nothing_is_not_reported_as_overdue(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    charge = make_charge(database, state=State.PENDING, age=DAY + 1)
    stub.script(STATUS, Reply(503))
    with stub.hold(STATUS) as hold:
        thread = threading.Thread(target=polls.run, args=(charge,))
        thread.start()
        hold.wait()
        with database.transaction() as tx:
            assert settle(tx, charge, Succeeded("first"))
    thread.join()
    assert about(polls.job(charge)) == 0
    assert caplog.messages == []
    assert polls.run(charge) is None


def test_a_worker_whose_lease_moved_on_settles_nothing(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, state=State.PENDING)
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    with stub.hold(STATUS) as hold:
        thread = threading.Thread(target=polls.run, args=(charge,))
        thread.start()
        hold.wait()
        with database.connection() as connection:
            connection.execute("UPDATE vpay.jobs SET lease = gen_random_uuid()")
    thread.join()
    assert read_charge(database, charge.id).state is State.PENDING
    assert events(database) == []
    assert polls.job(charge) is not None


def test_an_intent_that_can_not_follow_rolls_everything_back_and_is_looked_at_hourly(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    intent = make_intent(database)
    charge = make_charge(database, intent, state=State.PENDING)
    with database.connection() as connection:
        assert intents.cancel(connection, intent.id) is not None
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    row = polls.run(charge)
    assert about(row) == 3600
    assert row is not None
    assert not row.parked
    assert read_charge(database, charge.id).state is State.PENDING
    assert events(database) == []
    assert logging.CRITICAL in [r.levelno for r in caplog.records]


def test_a_charge_on_a_rail_that_the_settings_lost_waits_and_is_told(
    database: Database, polls: Polls
) -> None:
    charge = make_charge(database, state=State.PENDING)
    with database.transaction() as tx:
        force(tx, charge.id, provider_code="gone")
    row = polls.run(charge)
    assert row is not None
    assert row.last_error is not None
    assert "[rails.gone]" in row.last_error
    assert (about(row), row.parked) == (3600, False)


def test_no_payer_and_no_secret_is_in_any_line_or_event(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    charge = make_charge(database, state=State.SUBMITTED)
    for reply in replies(charge).values():
        stub.script(STATUS, reply)
        polls.run(charge)
    stub.script(STATUS, told(charge, "FAILED", reason="PAYER_NOT_FOUND"))
    polls.run(charge)
    everything = "".join(str(r.__dict__) for r in caplog.records)
    everything += "".join(str(row) for row in event_rows(database))
    for secret in (stub.credentials.api_key, stub.credentials.subscription_key, "46733123601"):
        assert secret not in everything
