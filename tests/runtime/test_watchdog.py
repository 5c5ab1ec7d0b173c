"""Budgets and dead threads: cancel first, end the process when that doesn't help."""

from __future__ import annotations

import math
import uuid
from typing import NoReturn

import pytest

from vpay_tasks.runtime.run import Run, Running
from vpay_tasks.runtime.watchdog import Watchdog
from vpay_tasks.store.jobs import StartedJob


class Ended(Exception):
    """What `give_up` raises here instead of ending the test's process."""


def a_run(budget: float) -> Run:
    job = StartedJob(1, uuid.uuid4(), "a_kind", "default", {}, 0, 0, 0.0)
    run = Run(job, lambda _: pytest.fail("not finished here"), held_until=math.inf)
    run.begin(budget)
    return run


def watchdog(run: Run, *, stuck_after: float, dead: tuple[str, ...] = ()) -> Watchdog:
    def give_up(stuck: list[Run]) -> NoReturn:
        raise Ended(*[item.kind for item in stuck])

    running = Running()
    running.add([run])
    return Watchdog(
        running, dead_threads=lambda: list(dead), give_up=give_up, stuck_after=stuck_after
    )


def test_a_run_within_its_budget_is_left_alone() -> None:
    run = a_run(60)
    watchdog(run, stuck_after=0).look()
    assert not run.cancelled


def test_a_run_over_its_budget_is_cancelled_and_gets_its_time_to_end() -> None:
    run = a_run(-1)
    watchdog(run, stuck_after=60).look()
    assert run.cancelled


def test_a_run_that_stays_after_its_cancelling_ends_the_process() -> None:
    with pytest.raises(Ended, match="a_kind"):
        watchdog(a_run(-1), stuck_after=0.5).look()


def test_a_handler_that_has_returned_is_never_stuck() -> None:
    run = a_run(-1)
    run.end()
    watchdog(run, stuck_after=0.5).look()
    assert not run.cancelled


def test_a_process_whose_threads_have_died_ends() -> None:
    with pytest.raises(Ended):
        watchdog(a_run(60), stuck_after=60, dead=("Thread-7",)).look()
