"""`sweep_retention`: messages and rails' words go after a while; the record of money stays."""

from __future__ import annotations

from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.errors import Severity
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import attempts, charges, events
from vpay_tasks.telemetry import say

PAGE: Final = 500
"""Rows of one transaction: an event takes its deliveries and their attempts with it."""
PAGES: Final = 40
"""Pages of one run, so that a backlog leaves the thread to others between its runs."""
WORDS_S: Final = 90 * 86_400.0
"""How long what a rail said of a failure is kept; it may name a payer. A constant and no
setting: it is a promise to payers."""


@task(kinds.SWEEP_RETENTION)
def sweep_retention(job: Job, ctx: Context) -> Answer:
    """Old events, then old words. Again at once if there was more than one run may take."""
    gone, more = _sweep_events(job, ctx)
    with ctx.db.connection() as connection:
        failures = charges.sweep_words(connection, keep=WORDS_S, page=PAGE)
        answers = attempts.sweep_words(connection, keep=WORDS_S, page=PAGE)
    if gone or failures or answers:
        say(
            Severity.INFO,
            "swept what was kept long enough",
            action="sweep_retention",
            events=gone,
            failures=failures,
            answers=answers,
        )
    return Again(0) if (more and gone) or PAGE in (failures, answers) else Done()


def _sweep_events(job: Job, ctx: Context) -> tuple[int, bool]:
    """How many went, and whether there is more to look at than one run may. The cursor passes
    what has to stay, which else would hide what is behind it."""
    gone = after = 0
    for _ in range(PAGES):
        with ctx.db.connection() as connection:
            page = events.page_behind(
                connection, after=after, keep=ctx.windows.keep_events, page=PAGE
            )
            old = [seq for seq, is_old in page if is_old]
            gone += events.sweep_old(connection, old) if old else 0
        if len(old) < PAGE or job.cancelled:
            return gone, False
        after = old[-1]
    return gone, True
