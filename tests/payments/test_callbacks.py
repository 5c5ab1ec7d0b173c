"""Callbacks at any pace: what they move, and how often the rail is asked."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.payment_kit import events, make_charge, opened, read_charge, scalar
from tests.payments.poll_kit import STATUS, Polls, told
from vpay_sandbox.httpd import Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core import kinds
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.payments import callbacks
from vpay_tasks.payments.callbacks import Outcome
from vpay_tasks.rails.port import ByReference
from vpay_tasks.store import charges
from vpay_tasks.store.db import Database, connect

FLOOR = 10.0


def a_charge(database: Database, state: State = State.PENDING, **columns: Any) -> Charge:
    """One whose poll is due in an hour."""
    charge = make_charge(database, state=state, age=columns.pop("age", 300.0), **columns)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.jobs SET run_at = now() + interval '1 hour'")
    return charge


def call_back(database: Database, charge: Charge) -> Outcome:
    named = ByReference(charge.provider_reference_id)
    return callbacks.take(database, charge.provider_code, named, within=5.0)


def due_in(database: Database, charge: Charge) -> float:
    key = kinds.poll_key(charge.id)
    query = "SELECT EXTRACT(EPOCH FROM run_at - now())::float8 FROM vpay.jobs WHERE dedupe_key = %s"
    return float(scalar(database, query, key))


def keeps_the_floor(database: Database) -> bool:
    return bool(
        scalar(
            database,
            "SELECT jobs.run_at >= charges.last_asked_at + interval '10 s'"
            " FROM vpay.jobs, vpay.charges",
        )
    )


class Minute:
    """Time that is moved in the database, and the instants at which a poll was run."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.moved = 0.0

    def passes(self, seconds: float) -> None:
        with self._database.connection() as connection:
            for column in ("jobs SET run_at = run_at", "charges SET last_asked_at = last_asked_at"):
                connection.execute(
                    f"UPDATE vpay.{column} - make_interval(secs => {seconds})".encode()
                )
        self.moved += seconds

    def now(self) -> float:
        clock = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"
        return float(scalar(self._database, clock)) + self.moved

    def due(self) -> bool:
        return bool(scalar(self._database, "SELECT count(*) FROM vpay.jobs WHERE run_at <= now()"))


@pytest.mark.parametrize("state", [State.PENDING, State.FAILED])
@pytest.mark.more(seconds=15)
def test_a_thousand_callbacks_over_a_minute_cost_one_ask_per_floor(
    database: Database, stub: StubRail, polls: Polls, state: State
) -> None:
    charge = a_charge(database, state, polls=9)
    word = {State.PENDING: "PENDING", State.FAILED: "FAILED"}[state]
    stub.script(STATUS, told(charge, word, reason="EXPIRED"), times=None)
    minute, asked = Minute(database), list[float]()
    for _ in range(1_000):
        call_back(database, charge)
        if minute.due():
            asked.append(minute.now())
            polls.run(charge)
        minute.passes(0.06)
    assert len(stub.requests(STATUS)) == len(asked)
    assert len(asked) >= 5
    assert [b - a for a, b in itertools.pairwise(asked) if b - a < FLOOR] == []
    assert read_charge(database, charge.id).state is state
    assert events(database) == []


def test_repeated_callbacks_move_nothing_more(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = a_charge(database, polls=9)
    stub.script(STATUS, told(charge, "PENDING"), times=None)
    assert [call_back(database, charge) for _ in range(3)] == [
        Outcome.PULLED,
        Outcome.REPEATED,
        Outcome.REPEATED,
    ]
    assert due_in(database, charge) <= 0
    polls.run(charge)
    assert due_in(database, charge) > 60
    assert [call_back(database, charge) for _ in range(2)] == [Outcome.PULLED, Outcome.REPEATED]
    assert keeps_the_floor(database)
    assert due_in(database, charge) <= FLOOR
    assert len(stub.requests(STATUS)) == 1


def test_a_callback_while_the_rail_is_being_asked_has_it_asked_again_after_the_floor(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = a_charge(database, polls=9)
    stub.script(STATUS, told(charge, "PENDING"), times=None)
    with ThreadPoolExecutor(1) as pool:
        with stub.hold(STATUS):
            run = pool.submit(polls.run, charge)
            stub.wait_requests(STATUS)
            outcomes = [call_back(database, charge) for _ in range(100)]
        run.result()
    assert outcomes == [Outcome.PULLED] + [Outcome.REPEATED] * 99
    assert keeps_the_floor(database)
    assert due_in(database, charge) <= FLOOR
    call_back(database, charge)
    assert keeps_the_floor(database)
    assert len(stub.requests(STATUS)) == 1


def test_an_ask_is_noted_before_it_is_answered(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    """A run that is killed in the middle has asked, too."""
    charge = a_charge(database)
    with ThreadPoolExecutor(1) as pool, stub.hold(STATUS):
        pool.submit(polls.run, charge)
        stub.wait_requests(STATUS)
        assert scalar(database, "SELECT last_asked_at IS NOT NULL FROM vpay.charges")


def test_an_ask_is_noted_before_a_callback_reads_it_or_after_it_moved_the_job(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    """Between the two, a callback that waits for the job's row would go by the ask before."""
    charge = a_charge(database)

    def note() -> None:
        with connect(dsn, application="tests") as own:
            charges.asking(own, charge.id)

    def blocked() -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return int(scalar(database, f"{query} AND datname = current_database()"))

    with connect(dsn, application="tests") as holder, ThreadPoolExecutor(2) as pool:
        holder.execute("BEGIN")
        holder.execute("SELECT id FROM vpay.jobs FOR UPDATE")
        called = pool.submit(call_back, database, charge)
        eventually(lambda: blocked() == 1)
        noted = pool.submit(note)
        eventually(lambda: blocked() == 2)
        holder.execute("COMMIT")
        assert called.result() is Outcome.PULLED
        noted.result()


def test_a_contradiction_is_seen_by_the_callback_about_it_and_paged_once(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = a_charge(database, State.FAILED, with_job=False)
    stub.script(STATUS, told(charge, "SUCCESSFUL"), times=None)
    for asks in (1, 2):
        assert call_back(database, charge) is Outcome.PULLED
        assert polls.run(charge) is None
        assert len(stub.requests(STATUS)) == asks
        Minute(database).passes(FLOOR)
    assert read_charge(database, charge.id).state is State.FAILED
    assert scalar(database, "SELECT contradicted_at IS NOT NULL FROM vpay.charges")
    assert events(database) == []


def test_a_failed_charge_is_asked_about_again_after_the_floor_whatever_was_answered(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    charge = a_charge(database, State.FAILED, with_job=False)
    replies = (Reply(500), Reply(404), told(charge, "FAILED"), told(charge, "PENDING"))
    for reply in replies:
        stub.script(STATUS, reply)
        call_back(database, charge)
        polls.run(charge)
        call_back(database, charge)
        assert keeps_the_floor(database)
        Minute(database).passes(3_600)
    assert len(stub.requests(STATUS)) == len(replies)


def test_a_poll_that_ends_its_charge_leaves_a_later_callback_its_ask(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    """The first callback comes during the run that fails the charge, the second behind it."""
    charge = a_charge(database)
    stub.script(STATUS, told(charge, "FAILED", reason="EXPIRED"), times=None)
    with ThreadPoolExecutor(1) as pool:
        with stub.hold(STATUS):
            run = pool.submit(polls.run, charge)
            stub.wait_requests(STATUS)
            call_back(database, charge)
        run.result()
    assert read_charge(database, charge.id).state is State.FAILED
    assert call_back(database, charge) is Outcome.PULLED
    assert keeps_the_floor(database)
    assert polls.run(charge) is None
    assert len(stub.requests(STATUS)) == 2


def test_a_poll_that_is_due_anyway_learns_that_it_is_to_ask_once_more(
    database: Database, stub: StubRail, polls: Polls
) -> None:
    """As behind a confirm that was declined: its poll stands, due, and would not ask."""
    charge = make_charge(database, state=State.FAILED, age=300)
    stub.script(STATUS, told(charge, "FAILED", reason="EXPIRED"))
    assert [call_back(database, charge) for _ in range(2)] == [Outcome.PULLED, Outcome.REPEATED]
    assert polls.run(charge) is None
    assert len(stub.requests(STATUS)) == 1


class Sink:
    """Where hints go."""

    def __init__(self) -> None:
        self.keys: list[set[str]] = []

    def add(self, keys: set[str]) -> None:
        self.keys.append(keys)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("with_job", [False, True])
def test_the_hint_of_a_callback_says_look_and_not_which_job_to_pull_forward(
    dsn: str, with_job: bool
) -> None:
    """A hint with a job's key makes it due at once, whatever the floor."""
    sink = Sink()
    with opened(dsn, hints=sink) as database:
        charge = a_charge(database, with_job=with_job)
        sink.keys.clear()
        call_back(database, charge)
        assert sink.keys == [{""}]
        with database.connection() as connection:
            connection.execute("UPDATE vpay.jobs SET run_at = now() + interval '1 hour'")
            charges.asking(connection, charge.id)
        call_back(database, charge)
        assert sink.keys == [{""}], "nothing to look at yet"


@pytest.mark.parametrize(("age", "due"), [(5.0, 55.0), (61.0, 0.0)])
def test_a_charge_that_is_its_confirms_is_not_polled_before_its_window_is_over(
    database: Database, age: float, due: float
) -> None:
    charge = a_charge(database, State.SUBMITTING, age=age)
    assert call_back(database, charge) is Outcome.PULLED
    assert due_in(database, charge) <= due
    assert scalar(
        database,
        "SELECT jobs.run_at >= charges.created_at + interval '60 s' FROM vpay.jobs, vpay.charges",
    )


def test_a_parked_poll_stays_parked(database: Database) -> None:
    charge = a_charge(database)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'by_operator'")
    for _ in range(2):
        assert call_back(database, charge) is Outcome.REPEATED
    assert due_in(database, charge) > 3_000
