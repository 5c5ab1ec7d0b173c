"""Kinds of jobs as an application has them, which do what their payload says."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, Final

from tests.model.sessions import current
from vpay_tasks.core.job import Again, Answer, Done, Park
from vpay_tasks.core.task import Kind, Registry, Task
from vpay_tasks.handlers.context import Context
from vpay_tasks.runtime.run import Run

SCRIPTS: Final = ("done", "finish", "again", "raise", "abandon", "park", "soon")
"""What a run does; the last word of a job's script is that of every later run, too."""

ENDS: Final = ("done", "finish", "park")


class Journal:
    """What the tasks did, as whoever watches them from outside would write it down."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self.answers: dict[tuple[int, Any], str] = {}

    def forget(self) -> None:
        self.runs.clear()
        self.answers.clear()


JOURNAL: Final = Journal()


class OwnError(Exception):
    """An application's own."""


def run(job: Run, ctx: Context, script: list[str]) -> Answer | None:
    """The next word of the script."""
    session = current()
    assert session is not None
    word = script[min(JOURNAL.runs[job.id], len(script) - 1)]
    JOURNAL.runs[job.id] += 1
    session.pause("handler")
    with ctx.db.connection() as connection:
        connection.execute("SELECT 1")
    answer = _do(word, job, ctx)
    JOURNAL.answers[job.id, job.lease] = word
    return answer


def _do(word: str, job: Run, ctx: Context) -> Answer | None:
    match word:
        case "finish":
            # Said before: the commit may happen and its answer be lost.
            JOURNAL.answers[job.id, job.lease] = word
            with job.finishing() as tx:
                tx.execute("INSERT INTO model.effects (job_id) VALUES (%s)", (job.id,))
        case "abandon":
            with job.finishing() as tx:
                tx.execute("INSERT INTO model.effects (job_id) VALUES (%s)", (job.id,))
                raise OwnError("thought better of it")
        case "again":
            return Again(7)
        case "soon":
            return Again(0)
        case "raise":
            raise OwnError("not this time")
        case "park":
            return Park("enough")
        case _:
            return Done()
    return None


def task(name: str, **more: Any) -> Task:
    return Task(Kind(name, queue="default", **more), run, inspect.signature(run))


PLAIN = task("model_plain", max_attempts=4)
BATCHED = task("model_batched", batch=3)
LANED = task("model_laned", lane="flight")
NEW = task("model_new")
"""Of the next release: some workers don't know it yet."""

ALL: Final = (PLAIN, BATCHED, LANED, NEW)
BY_NAME: Final = {one.kind.name: one for one in ALL}


def registry(built_in: list[Task], *, newest: bool) -> Registry:
    """What a process of this release, or of the one before, knows."""
    made = Registry()
    for one in [*built_in, *(ALL if newest else ALL[:-1])]:
        made.add(one)
    return made
