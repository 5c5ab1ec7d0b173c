"""start → handler → settle: what each ending does to the row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import proxy
from tests.factories import a_job, a_worker, change, claimed, row
from tests.runtime.bench import Bench
from vpay_tasks import telemetry
from vpay_tasks.core.job import Again, Done, Park
from vpay_tasks.errors import Configuration, Internal, InvalidRequest, LeaseLost, Rail, Storage
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.store import jobs
from vpay_tasks.store.db import Database


@pytest.fixture
def ran() -> list[Any]:
    return []


def test_a_job_whose_message_comes_twice_runs_once(
    bench: Bench, database: Database, ran: list[Any]
) -> None:
    bench.task(lambda job, ctx: ran.append(job.id))
    job = a_job(database)
    bench.run(copies=3)
    assert ran == [job]
    assert row(database, job) is None


def test_a_forged_message_runs_nothing(bench: Bench, database: Database, ran: list[Any]) -> None:
    bench.task(lambda job, ctx: ran.append(job.id))
    job = a_job(database)
    bench.forged(job)
    bench.forged(job + 1_000)
    assert ran == []
    found = row(database, job)
    assert found is not None
    assert found["starts"] == 0


@pytest.mark.parametrize("answer", [None, Done()])
def test_a_job_that_is_done_is_gone(bench: Bench, database: Database, answer: Any) -> None:
    bench.task(lambda job, ctx: answer)
    job = a_job(database)
    bench.run()
    assert row(database, job) is None


def test_again_comes_back_without_a_failure(bench: Bench, database: Database) -> None:
    bench.task(lambda job, ctx: Again(60))
    job = a_job(database)
    change(database, "failures = 2", job)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert (found["failures"], found["lease"], found["parked_at"]) == (0, None, None)


def test_park_keeps_the_row_with_the_tasks_own_words(bench: Bench, database: Database) -> None:
    bench.task(lambda job, ctx: Park("no such\x00 order"))
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert (found["dead_reason"], found["last_error"]) == ("by_task", "no such  order")


@pytest.mark.parametrize(
    ("error", "reason", "failures"),
    [
        (RuntimeError("boom"), None, 1),
        (SystemExit(3), None, 1),
        (KeyboardInterrupt(), None, 1),
        (Rail("down"), None, 1),
        (Storage("down"), None, 1),
        (InvalidRequest("never"), "rejected", 0),
        (Configuration("wrong"), "misconfigured", 0),
        (Internal("bug"), "poisoned", 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_a_task_raises_decides_its_row(
    bench: Bench, database: Database, error: BaseException, reason: str | None, failures: int
) -> None:
    def fails(job: Any, ctx: Any) -> None:
        raise error

    bench.task(fails)
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert (found["dead_reason"], found["failures"]) == (reason, failures)
    assert type(error).__name__ in found["last_error"]


def test_a_protected_kind_is_never_parked_by_a_bug(bench: Bench, database: Database) -> None:
    def fails(job: Any, ctx: Any) -> None:
        raise ZeroDivisionError

    bench.task(fails, protected=True, built_in=True)
    job = a_job(database)
    alerts = telemetry.counts().get("alerts", 0)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert (found["dead_reason"], found["failures"]) == (None, 1)
    assert telemetry.counts()["alerts"] == alerts + 1


@pytest.mark.parametrize("text", ["nul \x00", "half a pair \ud800", "bell \x07", "x" * 10_000])
def test_any_error_text_settles(bench: Bench, database: Database, text: str) -> None:
    def fails(job: Any, ctx: Any) -> None:
        raise RuntimeError(text)

    bench.task(fails)
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert found["lease"] is None
    assert len(found["last_error"]) <= 2_000


def test_a_payload_that_doesnt_fit_the_handler_is_parked_as_rejected(
    bench: Bench, database: Database
) -> None:
    bench.task(lambda job, ctx, *, order: None)
    job = a_job(database, payload={"odrer": 1})
    bench.run()
    found = row(database, job)
    assert found is not None
    assert found["dead_reason"] == "rejected"
    assert "odrer" in found["last_error"] or "order" in found["last_error"]


def test_an_answer_of_another_kind_is_parked_and_told(bench: Bench, database: Database) -> None:
    bench.task(lambda job, ctx: "done")
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert "not str" in found["last_error"]


def test_a_singleton_that_is_done_or_fails_comes_back_at_its_interval(
    bench: Bench, database: Database
) -> None:
    def fails(job: Any, ctx: Any) -> None:
        raise Internal("bug")

    one = {"singleton": "one", "every": 500.0, "protected": True, "built_in": True}
    bench.task(lambda job, ctx: Done(), name="good", **one)
    bench.task(fails, name="bad", **one)
    ids = [a_job(database, "good"), a_job(database, "bad")]
    bench.run()
    with database.connection() as connection:
        waits = connection.execute(
            "SELECT extract(epoch FROM run_at - now())::int FROM vpay.jobs WHERE id = ANY(%s)",
            (ids,),
        ).fetchall()
    assert [480 < wait <= 500 for (wait,) in waits] == [True, True]


def test_an_unknown_kind_waits_without_spending_an_attempt_and_is_parked_in_the_end(
    bench: Bench, database: Database
) -> None:
    job = a_job(database, "newer")
    bench.run()
    found = row(database, job)
    assert found is not None
    assert found["unknown_since"] is not None
    assert (found["failures"], found["dead_reason"]) == (0, None)
    change(database, "run_at = now()", job)
    bench.run()
    kept = row(database, job)
    assert kept is not None
    assert kept["unknown_since"] == found["unknown_since"], "a start by the ignorant keeps it"
    change(database, "run_at = now(), unknown_since = now() - interval '11 min'", job)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert (found["dead_reason"], found["failures"]) == ("unknown_kind", 0)
    assert "deploy its module" in found["last_error"]


def test_a_worker_that_knows_the_kind_clears_unknown_since(
    bench: Bench, database: Database
) -> None:
    bench.task(lambda job, ctx: Again(60))
    job = a_job(database)
    change(database, "unknown_since = now()", job)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert found["unknown_since"] is None


def test_jobs_of_a_batch_are_settled_each_by_itself(
    bench: Bench, database: Database, ran: list[Any]
) -> None:
    def third_fails(job: Any, ctx: Any, *, n: int) -> None:
        ran.append(n)
        if n == 2:
            raise RuntimeError("third")

    bench.task(third_fails, batch=5)
    ids = [a_job(database, payload={"n": n}) for n in range(5)]
    bench.run(batches={"a_kind": 5})
    assert ran == [0, 1, 2, 3, 4]
    assert [row(database, id_) is None for id_ in ids] == [True, True, False, True, True]


def test_a_draining_process_gives_back_what_it_has_not_begun(
    bench: Bench, database: Database, ran: list[Any]
) -> None:
    def drains(job: Any, ctx: Any) -> None:
        ran.append(job.id)
        bench.runner.draining = True

    bench.task(drains, batch=3)
    first, *others = [a_job(database) for _ in range(3)]
    bench.run(batches={"a_kind": 3})
    assert ran == [first]
    for id_ in others:
        found = row(database, id_)
        assert found is not None
        assert (found["lease"], found["crashes"], found["failures"]) == (None, 0, 0)
    bench.run()
    assert ran == [first], "a drained process starts nothing"


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


def test_a_start_whose_answer_was_lost_is_overruled_and_runs_once(
    database: Database, dsn: str, ran: list[Any]
) -> None:
    a_worker(database)
    with proxy.before(dsn) as (line, through):
        shaky = Database(through, application="shaky")
        bench = Bench(shaky, dsn)
        bench.task(lambda job, ctx: ran.append(job.id))
        first = a_job(database)
        bench.run()
        second = a_job(database)
        with database.connection() as connection:
            (message,) = claimed(connection).messages
        line.cut_on_answer()
        bench.runner.run_message(Envelope("default", tuple(message.ids), message.lease))
        bench.settler.close()
        shaky.close()
    assert ran == [first, second]
    assert row(database, second) is None


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
                line.cut_on_answer(skip=1)  # the finish is answered, its commit is not

        bench.task(writes)
        job = a_job(database)
        bench.run()
        bench.settler.close()
        shaky.close()
    assert ran == [job]
    assert row(database, job) is None
    assert _effects(database) == 1


def _effects(database: Database) -> int:
    with database.connection() as connection:
        rows = connection.execute("SELECT count(*) FROM public.effects").fetchall()
    return int(rows[0][0])
