"""Group settles: a bad row can't hold its mates, a lost answer is looked up."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator

import pytest

from tests.conftest import Eventually
from tests.e2e import proxy
from tests.factories import a_job, a_worker, row, started
from vpay_tasks import telemetry
from vpay_tasks.core.settling import Ending, Verb
from vpay_tasks.core.task import Kind, Registry, Task
from vpay_tasks.runtime.run import Run
from vpay_tasks.runtime.settle import POISONED_TEXT, Awaited, Pending, Settler
from vpay_tasks.store.db import Database
from vpay_tasks.store.jobs import StartedJob


def run_of(job: StartedJob) -> Run:
    return Run(job, lambda _: pytest.fail("no handler runs here"), held_until=math.inf)


@pytest.fixture
def runs(database: Database) -> list[Run]:
    """Five started jobs."""
    a_worker(database)
    for _ in range(5):
        a_job(database)
    with database.connection() as connection:
        return [run_of(job) for job in started(connection)]


@pytest.fixture
def settler(dsn: str) -> Iterator[Settler]:
    settler = Settler(dsn, Registry(), application="test")
    settler.start()
    yield settler
    settler.close()


def submit(settler: Settler, run: Run, ending: Ending) -> Pending:
    return settler.submit(run, ending, Awaited())


def wait(pending: list[Pending]) -> None:
    for item in pending:
        assert item.awaited.wait(20)


def test_one_bad_row_is_parked_and_its_mates_are_settled(
    settler: Settler, database: Database, runs: list[Run]
) -> None:
    bad, *mates = runs
    pending = [submit(settler, bad, Ending(Verb.RETRY, 1.0, "nul \x00"))]
    pending += [submit(settler, run, Ending(Verb.FINISH)) for run in mates]
    wait(pending)
    found = row(database, bad.id)
    assert found is not None
    assert (found["dead_reason"], found["last_error"]) == ("poisoned", POISONED_TEXT)
    assert [row(database, run.id) for run in mates] == [None] * 4


def test_a_protected_bad_row_is_not_parked(dsn: str, database: Database, runs: list[Run]) -> None:
    registry = Registry()
    kind = Kind("a_kind", protected=True)
    registry.add(Task(kind, lambda job, ctx: None, __import__("inspect").signature(lambda: None)))
    settler = Settler(dsn, registry, application="test")
    settler.start()
    wait([submit(settler, runs[0], Ending(Verb.RETRY, 1.0, "nul \x00"))])
    settler.close()
    found = row(database, runs[0].id)
    assert found is not None
    assert (found["dead_reason"], found["last_error"]) == (None, POISONED_TEXT)


def test_a_row_that_somebody_holds_lets_its_mates_pass(
    settler: Settler, database: Database, runs: list[Run]
) -> None:
    held, *mates = runs
    with database.connection() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM vpay.jobs WHERE id = %s FOR UPDATE", (held.id,))
        waiting = submit(settler, held, Ending(Verb.FINISH))
        wait([submit(settler, run, Ending(Verb.FINISH)) for run in mates])
        assert not waiting.awaited.wait(0)
        connection.execute("COMMIT")
    wait([waiting])
    assert row(database, held.id) is None


def test_a_settle_whose_answer_is_lost_is_looked_up_and_not_repeated(
    dsn: str, database: Database, runs: list[Run]
) -> None:
    ambiguous = telemetry.counts().get("settles_ambiguous", 0)
    lost = telemetry.counts().get("settles_lost", 0)
    with proxy.before(dsn) as (line, through):
        settler = Settler(through, Registry(), application="test")
        settler.start()
        wait([submit(settler, runs[0], Ending(Verb.FINISH))])  # the connection stands
        line.cut_on_answer()
        wait([submit(settler, runs[1], Ending(Verb.RETRY, 600.0, "why"))])
        settler.close()
    found = row(database, runs[1].id)
    assert found is not None
    assert (found["failures"], found["settled_by"]) == (1, runs[1].lease)
    assert telemetry.counts()["settles_ambiguous"] == ambiguous + 1
    assert telemetry.counts().get("settles_lost", 0) == lost


def test_a_finish_whose_answer_is_lost_is_not_said_to_be_lost(
    dsn: str, database: Database, runs: list[Run]
) -> None:
    """Its row is gone, so nobody can tell whose finish that was."""
    names = ("settles_ambiguous", "ambiguous_unknown", "settles_lost")
    before = [telemetry.counts().get(name, 0) for name in names]
    with proxy.before(dsn) as (line, through):
        settler = Settler(through, Registry(), application="test")
        settler.start()
        wait([submit(settler, runs[0], Ending(Verb.FINISH))])
        line.cut_on_answer()
        wait([submit(settler, runs[1], Ending(Verb.FINISH))])
        settler.close()
    assert row(database, runs[1].id) is None
    after = [telemetry.counts().get(name, 0) for name in names]
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 1, 0]


def test_a_settle_that_never_reached_postgres_is_sent_again(
    dsn: str, database: Database, runs: list[Run], eventually: Eventually
) -> None:
    with proxy.before(dsn) as (line, through):
        settler = Settler(through, Registry(), application="test")
        settler.start()
        wait([submit(settler, runs[0], Ending(Verb.FINISH))])
        line.hold()
        pending = submit(settler, runs[1], Ending(Verb.FINISH))
        eventually(line.kept_back.is_set)
        line.refuse()
        assert row(database, runs[1].id) is not None
        line.release()
        line.accept_again()
        wait([pending])
        settler.close()
    assert row(database, runs[1].id) is None


def test_a_settle_that_waits_for_postgres_is_written_before_the_settler_ends(
    dsn: str, database: Database, runs: list[Run], eventually: Eventually
) -> None:
    with proxy.before(dsn) as (line, through):
        settler = Settler(through, Registry(), application="test")
        settler.start()
        wait([submit(settler, runs[0], Ending(Verb.FINISH))])
        line.refuse()
        waiting = submit(settler, runs[1], Ending(Verb.FINISH))
        eventually(lambda: waiting.tries >= 2)
        line.accept_again()
        settler.close()
    assert row(database, runs[1].id) is None


def test_only_a_finish_may_have_taken_a_row_that_is_gone(
    dsn: str, database: Database, runs: list[Run], eventually: Eventually
) -> None:
    """The answer is lost and the row is gone: another run has ended what we meant to repeat."""
    lost = telemetry.counts().get("settles_lost", 0)
    with proxy.before(dsn) as (line, through):
        settler = Settler(through, Registry(), application="test")
        settler.start()
        wait([submit(settler, runs[0], Ending(Verb.FINISH))])
        line.hold()
        pending = submit(settler, runs[1], Ending(Verb.RETRY, 600.0, "why"))
        eventually(line.kept_back.is_set)
        line.refuse()
        with database.connection() as connection:
            connection.execute("DELETE FROM vpay.jobs WHERE id = %s", (runs[1].id,))
        line.release()
        line.accept_again()
        wait([pending])
        settler.close()
    assert telemetry.counts().get("settles_lost", 0) == lost + 1


def test_a_stale_settle_is_counted_and_let_go(
    settler: Settler, database: Database, runs: list[Run]
) -> None:
    lost = telemetry.counts().get("settles_lost", 0)
    stale = run_of(StartedJob(runs[0].id, uuid.uuid4(), "a_kind", "default", {}, 0, 0, 0.0))
    wait([submit(settler, stale, Ending(Verb.FINISH))])
    assert row(database, runs[0].id) is not None
    assert telemetry.counts()["settles_lost"] == lost + 1


def test_an_ambiguous_settle_is_looked_up_before_it_is_sent_again(
    dsn: str, database: Database, runs: list[Run], eventually: Eventually
) -> None:
    """Postgres is away while the answer is missing: it was done, and must not look lost."""
    lost = telemetry.counts().get("settles_lost", 0)
    with proxy.before(dsn) as (line, through):
        settler = Settler(through, Registry(), application="test")
        settler.start()
        wait([submit(settler, runs[0], Ending(Verb.FINISH))])
        line.refuse_after_answer()
        pending = submit(settler, runs[1], Ending(Verb.RETRY, 600.0, "why"))
        eventually(lambda: (row(database, runs[1].id) or {})["lease"] is None)
        eventually(lambda: pending.tries >= 2)
        line.accept_again()
        wait([pending])
        settler.close()
    assert telemetry.counts().get("settles_lost", 0) == lost


def test_a_stale_run_is_not_told_that_the_new_runs_settle_was_its_own(
    settler: Settler, database: Database, runs: list[Run]
) -> None:
    lost = telemetry.counts().get("settles_lost", 0)
    stale = run_of(StartedJob(runs[0].id, uuid.uuid4(), "a_kind", "default", {}, 0, 0, 0.0))
    with database.connection() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM vpay.jobs WHERE id = %s FOR UPDATE", (runs[1].id,))
        first = submit(settler, runs[1], Ending(Verb.FINISH))  # holds the next group together
        both = [submit(settler, run, Ending(Verb.FINISH)) for run in (stale, runs[0])]
        connection.execute("COMMIT")
    wait([first, *both])
    assert telemetry.counts()["settles_lost"] == lost + 1


def test_the_settler_outlives_an_ending_that_cant_be_sent(
    settler: Settler, database: Database, runs: list[Run]
) -> None:
    odd = Ending(Verb.PARK, error="x", reason="no reason of ours")  # type: ignore[arg-type]
    wait([submit(settler, runs[0], odd), submit(settler, runs[1], Ending(Verb.FINISH))])
    found = row(database, runs[0].id)
    assert found is not None
    assert found["dead_reason"] == "poisoned"
    assert row(database, runs[1].id) is None
    assert settler.is_alive()


def test_a_settle_that_is_told_twice_does_not_pass_for_its_mates(runs: list[Run]) -> None:
    awaited = Awaited()
    first, second = (Pending(run, Ending(Verb.FINISH), awaited) for run in runs[:2])
    awaited.expect()
    awaited.expect()
    first.over()
    first.over()
    assert not awaited.wait(0)
    second.over()
    assert awaited.wait(0)
