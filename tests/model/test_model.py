"""The whole installation as a model. These programs are the same each time, so that a red run is
about the change that it judges; `make sim` draws others."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator

import pytest
from hypothesis.stateful import invariant

from tests.model import connection, sessions
from tests.model.lab import drive, lab
from tests.model.machine import Installation
from tests.model.program import ALL
from tests.model.sim import CHUNK, RULES
from vpay_tasks.store import jobs, leases, settles, sql


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Installation]]:
    with lab(tmp_path_factory.mktemp("model")) as machine:
        yield machine


SEED = 7
"""Once more by hand: make sim ARGS="--steps 1 --seed 7"."""


def test_no_program_breaks_a_promise(machine: type[Installation]) -> None:
    drive(machine, SEED, examples=CHUNK, steps=RULES, shrinks=False)
    assert machine.record["jobs_finished"] > 0


@pytest.mark.more(seconds=60)
def test_what_is_rare_breaks_no_promise(machine: type[Installation]) -> None:
    for number in range(1, 4):
        drive(machine, SEED + number, examples=CHUNK, steps=RULES, shrinks=False)
    for path in ("blocked on a lock", "duplicates_refused", "jobs_parked"):
        assert machine.record[path] > 0


BY_TOKEN = "jobs.id = given.id AND jobs.lease = given.lease"


@pytest.mark.more(seconds=30)
@pytest.mark.parametrize(
    ("statements", "name", "guard", "without"),
    [
        (settles.SQL, "settle", BY_TOKEN, "jobs.id = given.id"),
        (jobs.SQL, "start", BY_TOKEN, "jobs.id = given.id"),
        (jobs.SQL, "start", "lease = %(run)s::uuid,", "lease = jobs.lease,"),
        (jobs.SQL, "release", BY_TOKEN, "jobs.id = given.id"),
        (leases.SQL, "reap_gone", "WHERE NOT EXISTS (", "WHERE true OR NOT EXISTS ("),
        (leases.SQL, "reap_expired", "lease_until < now()", "started_at IS NULL"),
    ],
    ids=["settle", "start", "swap", "release", "reap", "claims"],
)
def test_a_guard_that_is_taken_out_is_missed(
    machine: type[Installation],
    monkeypatch: pytest.MonkeyPatch,
    statements: sql.Statements,
    name: str,
    guard: str,
    without: str,
) -> None:
    text = statements[name].text
    assert guard in text
    broken = dataclasses.replace(statements[name], text=text.replace(guard, without))
    monkeypatch.setitem(statements, name, broken)
    with pytest.raises(AssertionError, match=r"I[1-9]"):
        drive(machine, 1, examples=150, steps=40, shrinks=False)


HOLDS = 3
"""Steps of a fan-out: BEGIN, its turn, which is a lock, and its page."""


def test_a_process_killed_in_a_lock_s_queue_leaves_it_though_the_holder_stands_still(
    machine: type[Installation],
) -> None:
    program = machine()
    try:
        program.housekeep(0, "fan out", HOLDS)
        program.housekeep(1, "fan out", ALL)
        holder, waiting = program.sessions.all[-2:]
        assert (holder.at, waiting.at) == ("events.page", "lock of events.take_turn")
        program.kill(1, newest=True)
        assert waiting.over
        assert not holder.over
        backend = waiting.connection.pid
        assert not program.server.rows("SELECT FROM pg_stat_get_activity(%s)", backend)
    finally:
        program.teardown()
    assert holder.over


def test_a_charge_whose_decline_nobody_heard_comes_to_its_end(machine: type[Installation]) -> None:
    program = machine()
    try:
        program.pay(False, "declines", 1)
        (session,) = program.app.sessions
        while session.at != "rail.submitted":
            session.step()
        program.kill(0, newest=True)
        assert session.over
        assert [*program.world.rail.orders.values()] == ["declined"]
    finally:
        program.teardown()
    assert program.server.rows("SELECT state FROM vpay.charges") == [("failed",)]
    assert [*program.world.rail.submits.values()] == [2]


def test_a_program_that_would_have_no_end_fails_and_leaves_nothing_behind(
    machine: type[Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits_for_ever(self: Installation) -> None:
        self.housekeep(0, "fan out", HOLDS)
        with monkeypatch.context() as patch, self.telling():
            patch.setattr(connection, "STUCK_S", 0.2)
            self.server.rows("SELECT pg_advisory_lock(86, hashtext('vpay fan-out'))")

    endless = type("Endless", (machine,), {"holds": invariant()(waits_for_ever)})
    with pytest.raises(AssertionError, match=r"comes to rest: .*\n.* waits for") as caught:
        drive(endless, 5, examples=1, steps=1, shrinks=False)
    told = "\n".join(caught.value.__notes__)
    assert "worker 1: fan out: at events.page, backend" in told
    assert "From the seed 5" in told
    assert not _threads()


def test_a_step_that_does_not_come_back_is_given_up_and_its_thread_ends(
    machine: type[Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = machine()
    app = program.app

    def work() -> None:
        with app.db.connection() as own:
            own.execute("SELECT pg_sleep(1)")  # by a clock that stands still

    try:
        session = app.spawn("sleep", work)
        session.step()
        with monkeypatch.context() as patch:
            patch.setattr(sessions, "STUCK_S", 0.2)
            with pytest.raises(AssertionError, match="comes to rest: not app: sleep"):
                session.step()
        session.kill()
        program.clock.advance(2.0)
    finally:
        program.teardown()
    assert not _threads()


def test_one_that_cannot_be_ended_keeps_no_other_from_ending(
    machine: type[Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf() -> None:
        raise AssertionError("deaf")

    program = machine()
    program.pay(False, "answers", 2)
    program.housekeep(0, "fan out", HOLDS)
    session = program.app.sessions[0]
    program.broken = True
    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="deaf"):
        patch.setattr(session, "kill", deaf)
        program.teardown()
    assert _threads() == ["app: pay"]
    session.kill()
    assert not _threads()


def _threads() -> list[str]:
    """Of sessions, that go on."""
    return [
        one.name
        for one in threading.enumerate()
        if one.name.startswith(("app", "worker", "dispatcher"))
    ]


def test_a_retry_behind_a_finishing_that_could_not_be_asked_about_is_no_lie(
    machine: type[Installation],
) -> None:
    program = machine()
    try:
        program.enqueue("model_plain", None, ["finish"], 1, False, False, ALL)
        program.take_some(0)
        for at, fault in (("COMMIT", "after"), ("settles.was_committed", "before")):
            session = program.reach(0, at)
            assert session is not None
            assert "worker" in session.name
            session.fault = fault
            session.step()
        program.sessions.run(program.sessions.ready)
        program.holds()
    finally:
        program.teardown()
