"""start → handler → settle: what each ending does to the row."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.factories import a_job, change, claimed, row
from tests.runtime.bench import Bench
from vpay_tasks import telemetry
from vpay_tasks.core.job import Again, Done, Park
from vpay_tasks.errors import Configuration, Internal, InvalidRequest, Rail, Storage
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
    bench.forged(job)  # nobody has claimed it
    with database.connection() as connection:
        assert len(claimed(connection).messages) == 1
    bench.forged(job)  # somebody has, by another token
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


class Mute(Exception):
    def __str__(self) -> str:
        raise LookupError


class OddlyClassified(InvalidRequest):
    dead_reason = "whatever"  # type: ignore[assignment]


class OddlyLoud(InvalidRequest):
    severity = "very"  # type: ignore[assignment]


@pytest.mark.parametrize(
    "error",
    [Mute(), OddlyClassified("x"), OddlyLoud("x")],
    ids=["mute", "oddly classified", "oddly loud"],
)
def test_an_error_that_cant_be_told_leaks_neither_its_row_nor_its_mates(
    bench: Bench, database: Database, ran: list[Any], error: Exception
) -> None:
    def fails(job: Any, ctx: Any, *, n: int) -> None:
        ran.append(n)
        if n == 0:
            raise error

    bench.task(fails, batch=3)
    odd, *mates = [a_job(database, payload={"n": n}) for n in range(3)]
    bench.run(batches={"a_kind": 3})
    assert ran == [0, 1, 2]
    found = row(database, odd)
    assert found is not None
    assert found["lease"] is None
    assert [row(database, mate) for mate in mates] == [None, None]


def test_a_park_without_words_is_an_ordinary_failure_of_its_task(
    bench: Bench, database: Database
) -> None:
    bench.task(lambda job, ctx: Park(None))  # type: ignore[arg-type]
    job = a_job(database)
    bench.run()
    found = row(database, job)
    assert found is not None
    assert (found["lease"], found["failures"]) == (None, 1)


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


def test_a_payload_that_doesnt_fit_is_refused_each_time_beside_others_that_do(
    bench: Bench, database: Database, ran: list[Any]
) -> None:
    bench.task(lambda job, ctx, order: ran.append(order))
    for payload in ({"order": 1}, {"odrer": 2}, {"order": 3}, {"odrer": 4}):
        a_job(database, payload=payload)
        bench.run()
    assert ran == [1, 3]
    with database.connection() as connection:
        parked = connection.execute("SELECT dead_reason FROM vpay.jobs").fetchall()
    assert parked == [("rejected",), ("rejected",)]


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


def test_a_message_is_over_once_the_last_of_its_jobs_is_settled(
    bench: Bench, database: Database, eventually: Eventually
) -> None:
    with database.connection() as connection, ThreadPoolExecutor(1) as pool:

        def holds_its_row(job: Any, ctx: Any, *, n: int) -> None:
            if n == 0:
                connection.execute("BEGIN")
                connection.execute("SELECT 1 FROM vpay.jobs WHERE id = %s FOR UPDATE", (job.id,))

        bench.task(holds_its_row, batch=3)
        held, *mates = [a_job(database, payload={"n": n}) for n in range(3)]
        running = pool.submit(bench.run, batches={"a_kind": 3})
        eventually(lambda: not any(row(database, mate) for mate in mates))
        with pytest.raises(TimeoutError):
            running.result(timeout=0.2)
        assert sorted(run.id for run in bench.runner.running.all()) == [held, *mates]
        overrun = {run.over_budget_by() for run in bench.runner.running.all()}
        assert overrun == {-math.inf}, "what waits to be settled has no budget any more"
        connection.execute("COMMIT")
        running.result()
    assert row(database, held) is None
    assert bench.runner.running.all() == []


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
