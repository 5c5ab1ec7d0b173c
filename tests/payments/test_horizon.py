"""The horizon: what never ends by itself is kept asking for, and told, for ever."""

from __future__ import annotations

import logging

import pytest

from tests.payment_kit import events, force, make_attempt, make_charge, read_charge, scalar
from tests.payments.poll_kit import NOT_FOUND, STATUS, Polls, about, told
from tests.payments.resubmit_kit import SUBMITS
from vpay_sandbox.httpd import Answer, Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import AttemptClass, Charge, State
from vpay_tasks.store.db import Database

HOUR = 3_600.0


def grow(database: Database, charge: Charge, hours: float) -> None:
    """From now on it is so old; a streak that it has, an hour."""
    denied = read_charge(database, charge.id).not_found_streak > 0
    with database.transaction() as tx:
        force(tx, charge.id, age=hours * HOUR, not_found_for=HOUR if denied else None)


@pytest.mark.parametrize("state", [State.SUBMITTING, State.SUBMITTED, State.PENDING])
@pytest.mark.parametrize(
    "silence", [Reply(503), Hangup(), Reply(403)], ids=["503", "hang-up", "403"]
)
def test_a_rail_that_never_answers_is_asked_hourly_for_ever_and_its_late_word_settles(
    database: Database,
    stub: StubRail,
    polls: Polls,
    caplog: pytest.LogCaptureFixture,
    state: State,
    silence: Answer,
) -> None:
    charge = make_charge(database, state=state)
    make_attempt(database, charge, AttemptClass.UNKNOWN)
    stub.script(STATUS, silence, times=None)
    seen = []
    for hours in (1, 12, 23.9, 24, 25, 29, 8_760):
        grow(database, charge, hours)
        row = polls.run(charge)
        assert row is not None
        assert not row.parked
        seen.append((read_charge(database, charge.id).state, about(row) == 3600))
    assert [old for old, _ in seen] == [state] * 3 + [State.UNRESOLVED] * 4
    assert [hourly for _, hourly in seen[3:]] == [True] * 4
    alerts = [r for r in caplog.records if "Exhausted" in r.__dict__["fields"].get("error", "")]
    assert [r.levelno for r in alerts] == [logging.ERROR] * 4
    assert all(r.__dict__["fields"]["alert"] for r in alerts)
    assert events(database) == []
    stub.forget_scripts()
    grow(database, charge, 30)
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None
    assert events(database) == [("payment_intent.succeeded", charge.payment_intent_id)]


def test_a_rail_that_is_taken_out_of_the_settings_keeps_no_charge_from_being_unresolved(
    database: Database, stub: StubRail, polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    charge = make_charge(database, state=State.PENDING)
    rails = polls.context.rails
    polls.context.__dict__["rails"] = {}
    seen = []
    for hours in (1, 23.9, 24, 25):
        grow(database, charge, hours)
        assert about(polls.run(charge)) == 3600
        seen.append(read_charge(database, charge.id).state)
    assert seen == [State.PENDING] * 2 + [State.UNRESOLVED] * 2
    told_of = [r.__dict__["fields"].get("error", "") for r in caplog.records]
    assert ["put it back" in error for error in told_of if error] == [True] * 4
    assert ["Exhausted" in error for error in told_of if error] == [False] * 2 + [True] * 2
    polls.context.__dict__["rails"] = rails
    stub.script(STATUS, told(charge, "SUCCESSFUL"))
    assert polls.run(charge) is None


def test_a_charge_becomes_unresolved_once(database: Database, stub: StubRail, polls: Polls) -> None:
    charge = make_charge(database, state=State.PENDING, age=24 * HOUR)
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.moves (state text)")
        connection.execute(
            "CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO public.moves VALUES (NEW.state); RETURN NEW; END $$"
        )
        connection.execute(
            "CREATE TRIGGER note AFTER UPDATE ON vpay.charges FOR EACH ROW"
            " WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION public.note()"
        )
    stub.script(STATUS, told(charge, "PENDING"), times=None)
    for _ in range(3):
        assert about(polls.run(charge)) == 3600
    assert scalar(database, "SELECT array_agg(state) FROM public.moves") == ["unresolved"]


def test_a_submit_that_is_sent_again_and_again_in_vain_is_unresolved_after_a_day_and_sent_no_more(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = make_charge(database, age=61)
    stub.script(SUBMITS, Hangup(), times=None)
    stub.script(STATUS, NOT_FOUND, times=None)
    hours = 0.02
    while read_charge(database, charge.id).state is State.SUBMITTING:
        hours += 1
        grow(database, charge, hours)
        assert polls.run(charge) is not None
        if polls.resubmission(charge) is not None:
            assert polls.resubmit(charge) is None
    assert 24 <= hours < 26
    sent = [seen.request.headers["x-reference-id"] for seen in stub.requests(SUBMITS)]
    assert len(sent) > 3
    assert set(sent) == {charge.provider_reference_id}
    rows = scalar(database, "SELECT count(*) FROM vpay.provider_requests")
    assert rows == len(sent)
    for _ in range(4):
        grow(database, charge, hours)
        assert about(polls.run(charge)) == 3600
    assert len(stub.requests(SUBMITS)) == rows
    assert polls.resubmission(charge) is None
    assert events(database) == []
