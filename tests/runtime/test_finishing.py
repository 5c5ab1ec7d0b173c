"""`job.finishing()`, and starts and commits whose answers are lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.e2e import proxy
from tests.factories import a_job, a_worker, change, claimed, row
from tests.runtime.bench import Bench
from vpay_tasks import telemetry
from vpay_tasks.core.job import Again
from vpay_tasks.errors import LeaseLost
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.store import jobs
from vpay_tasks.store.db import Abandon, Database


@pytest.fixture
def ran() -> list[Any]:
    return []


def test_finishing_commits_the_handlers_writes_and_the_finish_together(
    bench: Bench, database: Database
) -> None:
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.effects (n int)")

    def writes(job: Any, ctx: Any) -> Again:
        with job.finishing() as tx:
            tx.execute("INSERT INTO public.effects VALUES (1)")
        return Again(60)  # comes too late, and is not settled again

    bench.task(writes)
    job = a_job(database)
    lost = telemetry.counts().get("settles_lost", 0)
    bench.run()
    assert row(database, job) is None
    assert _effects(database) == 1
    assert telemetry.counts().get("settles_lost", 0) == lost


def test_finishing_writes_nothing_when_the_lease_is_lost(bench: Bench, database: Database) -> None:
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.effects (n int)")

    def loses(job: Any, ctx: Any) -> None:
        with ctx.db.connection() as connection:
            jobs.release(connection, {job.id: job.lease})
        with job.finishing() as tx:
            tx.execute("INSERT INTO public.effects VALUES (1)")

    bench.task(loses)
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert (found["lease"], found["failures"], found["dead_reason"]) == (None, 0, None)
    assert _effects(database) == 0


def test_a_finishing_that_takes_its_time_still_has_its_lease_renewed(
    bench: Bench, database: Database, ran: list[Any]
) -> None:
    def takes_its_time(job: Any, ctx: Any) -> None:
        with job.finishing():
            ran.append(job.settling)  # what settles is not renewed

    bench.task(takes_its_time)
    a_job(database)
    bench.run()
    assert ran == [False]


def test_a_handler_that_abandons_its_finishing_is_settled_by_its_answer(
    bench: Bench, database: Database
) -> None:
    def thinks_better_of_it(job: Any, ctx: Any) -> Again:
        with job.finishing():
            if job.attempt == 1:
                raise Abandon
        return Again(60)

    bench.task(thinks_better_of_it)
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert found["lease"] is None


def test_an_error_inside_finishing_rolls_back_and_is_an_ordinary_failure(
    bench: Bench, database: Database
) -> None:
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.effects (n int)")

    def fails(job: Any, ctx: Any) -> None:
        with job.finishing() as tx:
            tx.execute("INSERT INTO public.effects VALUES (1)")
            raise RuntimeError("half way")

    bench.task(fails)
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert found["failures"] == 1
    assert _effects(database) == 0


def test_a_handler_that_raises_after_finishing_is_told_and_not_settled_again(
    bench: Bench, database: Database
) -> None:
    def raises(job: Any, ctx: Any) -> None:
        with job.finishing():
            pass
        raise RuntimeError("too late")

    bench.task(raises)
    job = a_job(database)
    failures = telemetry.counts().get("job_failures", 0)
    bench.run()
    assert row(database, job) is None
    assert telemetry.counts().get("job_failures", 0) == failures


def test_a_lease_lost_by_a_handlers_own_account_is_not_settled(
    bench: Bench, database: Database
) -> None:
    def gives_up(job: Any, ctx: Any) -> None:
        raise LeaseLost("seen elsewhere")

    bench.task(gives_up)
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert found["lease"] is not None, "the lease's end decides"


def test_a_start_waits_for_no_connection_that_handlers_hold(
    database: Database, dsn: str, ran: list[Any]
) -> None:
    a_worker(database)
    small = Database(dsn, size=1)
    bench = Bench(small, dsn)
    bench.task(lambda job, ctx: ran.append(job.id))
    job = a_job(database)
    with database.connection() as connection:
        (message,) = claimed(connection).messages
    with small.connection():
        bench.runner.run_message(Envelope("default", tuple(message.ids), message.lease))
        assert ran == [job]
    bench.close()
    small.close()


def test_a_start_whose_answer_was_lost_is_overruled_and_runs_once(
    database: Database, dsn: str, ran: list[Any]
) -> None:
    a_worker(database)
    with proxy.before(dsn) as (line, through):
        shaky = Database(through, application="shaky")
        bench = Bench(shaky, dsn)
        bench.task(lambda job, ctx: ran.append((job.id, (row(database, job.id) or {})["starts"])))
        first = a_job(database)
        bench.run()
        second = a_job(database)
        with database.connection() as connection:
            (message,) = claimed(connection).messages
        line.cut_on_answer()
        bench.runner.run_message(Envelope("default", tuple(message.ids), message.lease))
        bench.close()
        shaky.close()
    assert ran == [(first, 1), (second, 1)], "one claim is one start, however often it is sent"
    assert row(database, second) is None


def overruled(
    database: Database,
    dsn: str,
    ran: list[Any],
    eventually: Eventually,
    before_it_is_back: Callable[[proxy.Proxy], object],
) -> None:
    """A start loses its answer while Postgres goes away; it runs once, whatever is done to the
    way before it is back."""
    a_worker(database)
    with proxy.before(dsn) as (line, through), ThreadPoolExecutor(1) as pool:
        shaky = Database(through, application="shaky")
        bench = Bench(shaky, dsn)
        bench.task(lambda job, ctx: ran.append(job.id))
        first, job = a_job(database), a_job(database)
        with database.connection() as connection:
            one, other = claimed(connection).messages
        # Its starts have a connection then; to overrule one it must make another.
        bench.runner.run_message(Envelope("default", tuple(one.ids), one.lease))
        line.refuse_after_answer()
        envelope = Envelope("default", tuple(other.ids), other.lease)
        running = pool.submit(bench.runner.run_message, envelope)
        eventually(lambda: (row(database, job) or {}).get("starts") == 1 and line.down)
        before_it_is_back(line)
        line.accept_again()
        running.result()
        bench.close()
        shaky.close()
    assert ran == [first, job]
    assert row(database, job) is None


def test_a_lost_start_is_overruled_also_when_postgres_is_away_for_a_while(
    database: Database, dsn: str, ran: list[Any], eventually: Eventually
) -> None:
    overruled(database, dsn, ran, eventually, lambda line: None)


@pytest.mark.parametrize("answers", range(10))
def test_an_overruling_may_lose_its_own_answer_wherever_it_is(
    database: Database, dsn: str, ran: list[Any], eventually: Eventually, answers: int
) -> None:
    """The connection that overrules a lost start is cut, too, after `answers` of its own."""
    overruled(database, dsn, ran, eventually, lambda line: line.cut_on_answer(skip=answers))


def test_a_finishing_whose_commit_lost_its_answer_stands_and_is_not_run_again(
    database: Database, dsn: str, ran: list[Any]
) -> None:
    a_worker(database)
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.effects (n int)")
    with proxy.before(dsn) as (line, through):
        shaky = Database(through, application="shaky")
        bench = Bench(shaky, dsn)

        def writes(job: Any, ctx: Any) -> None:
            ran.append(job.id)
            with job.finishing() as tx:
                tx.execute("INSERT INTO public.effects VALUES (1)")
                line.cut_after_commit()

        bench.task(writes)
        job = a_job(database)
        bench.run()
        bench.close()
        shaky.close()
    assert ran == [job]
    assert row(database, job) is None
    assert _effects(database) == 1


def test_a_finishing_whose_commit_never_arrived_is_run_again_and_not_finished_alone(
    database: Database, dsn: str, ran: list[Any]
) -> None:
    a_worker(database)
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.effects (n int)")
    with proxy.before(dsn) as (line, through):
        shaky = Database(through, application="shaky")
        bench = Bench(shaky, dsn)

        def writes(job: Any, ctx: Any) -> None:
            ran.append(job.id)
            with job.finishing() as tx:
                tx.execute("INSERT INTO public.effects VALUES (1)")
                if len(ran) == 1:
                    line.swallow_commit()

        bench.task(writes)
        job = a_job(database)
        bench.run()
        found = row(database, job)
        assert found is not None
        assert (found["failures"], _effects(database)) == (1, 0)
        change(database, "run_at = now()", job)
        bench.run()
        bench.close()
        shaky.close()
    assert ran == [job, job]
    assert row(database, job) is None
    assert _effects(database) == 1


def test_a_finishing_that_did_not_happen_does_not_take_anothers_for_its_own(
    database: Database, dsn: str, ran: list[Any], eventually: Eventually
) -> None:
    """Its commit never arrived, and by the time it looks another run has finished the job."""
    a_worker(database)
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.effects (n int)")
    with proxy.before(dsn) as (line, through), ThreadPoolExecutor(1) as pool:
        shaky = Database(through, application="shaky")
        bench = Bench(shaky, dsn)

        def overtaken(job: Any, ctx: Any) -> None:
            try:
                with job.finishing() as tx:
                    tx.execute("INSERT INTO public.effects VALUES (1)")
                    tx.execute("SELECT FROM vpay.jobs FOR UPDATE")
                    pool.submit(_ended_by_another, database)
                    eventually(lambda: _waits_for_a_lock(database))
                    line.swallow_commit()
            except LeaseLost:
                ran.append("lost")
                raise
            ran.append("stands")

        bench.task(overtaken)
        job = a_job(database)
        bench.run()
        bench.close()
        shaky.close()
    assert ran == ["lost"]
    assert (row(database, job), _effects(database)) == (None, 0)


def _ended_by_another(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("DELETE FROM vpay.jobs")


def _waits_for_a_lock(database: Database) -> bool:
    with database.connection() as connection:
        asked = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return bool(connection.execute(asked).fetchall())


def _effects(database: Database) -> int:
    with database.connection() as connection:
        rows = connection.execute("SELECT count(*) FROM public.effects").fetchall()
    return int(rows[0][0])
