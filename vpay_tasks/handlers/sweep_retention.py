"""`sweep_retention`: messages and others' words go after a while; the record of money stays."""

from __future__ import annotations

import time
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.errors import Severity
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import attempts, charges, deliveries, events, inbox
from vpay_tasks.telemetry import count, say

PAGE: Final = 500
"""Rows of one transaction: an event takes its deliveries and their attempts with it."""
PAGES: Final = 40
"""Pages that one run deletes from, so that a backlog leaves the thread to others between its
runs. What has to stay is passed in the same run, however much: else it would hide what is
behind it from every run."""
LEFT_S: Final = 30.0
"""Of the run's budget, left when that is cut short. Lower: a page that waits overruns it;
higher: fewer of those that stay are passed (a page of them takes some milliseconds)."""
WORDS_S: Final = 90 * 86_400.0
"""How long the words of rails, receivers and vendors are kept; they may name a payer. A
constant and no setting: it is a promise to payers."""


@task(kinds.SWEEP_RETENTION)
def sweep_retention(job: Job, ctx: Context) -> Answer:
    """Old events, then old words. Again at once if there was more than one run may take."""
    gone, more = _sweep_events(job, ctx)
    with ctx.db.connection() as connection:
        failures = charges.sweep_words(connection, keep=WORDS_S, page=PAGE)
        answers = attempts.sweep_words(connection, keep=WORDS_S, page=PAGE)
        bodies = inbox.sweep_bodies(connection, keep=WORDS_S)
    if gone or failures or answers or bodies:
        count("swept", gone + failures + answers + bodies)
        say(
            Severity.INFO,
            "swept what was kept long enough",
            action="sweep_retention",
            events=gone,
            failures=failures,
            answers=answers,
            bodies=bodies,
        )
    full = PAGE in (failures, answers) or bodies == inbox.PAGE
    return Again(0) if (more and gone) or full else Done()


def _sweep_events(job: Job, ctx: Context) -> tuple[int, bool]:
    """How many went, and whether there is more to look at than one run may. The cursor passes
    what has to stay, which else would hide what is behind it."""
    gone = after = pages = 0
    while pages < PAGES and not job.cancelled and time.monotonic() < job.deadline - LEFT_S:
        with ctx.db.connection() as connection:
            page = events.page_behind(
                connection, after=after, keep=ctx.windows.keep_events, page=PAGE
            )
            old = [seq for seq, is_old in page if is_old]
            swept = events.sweep_old(connection, old) if old else 0
            if swept < len(old):
                deliveries.sweep_words(connection, old, keep=WORDS_S)
        gone += swept
        pages += swept > 0
        if len(old) < PAGE:
            return gone, False
        after = old[-1]
    return gone, True
