"""`scan_live_charges`: no live charge is left without somebody who asks about it.

A confirm writes the poll with the charge, and a poll ends with its charge, so this finds
nothing until a person or a bug has removed a job. It is the backstop for money.
"""

from __future__ import annotations

import time
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.errors import Severity
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import scans
from vpay_tasks.telemetry import alert

LEFT_S: Final = 30.0
"""Of the run's budget, left when a walk is cut short. Lower: a slow page overruns it; higher: a
walk of many live charges is cut sooner."""


@task(kinds.SCAN_LIVE_CHARGES)
def scan_live_charges(job: Job, ctx: Context) -> Answer:
    """Walks the live charges page by page, the longest untouched first, one statement each.

    A walk that is cut short needs no memory of where: a charge with a poll is touched at
    least hourly and goes to the end, so one without moves to the front by itself.
    """
    untouched = ctx.windows.scan_every
    page = scans.LivePage(scans.START)
    enqueued: list[str] = []
    while True:
        with ctx.db.connection() as connection:
            page = scans.scan_live(connection, page.end, untouched=untouched)
        enqueued += page.enqueued
        if not page.full or job.cancelled or time.monotonic() > job.deadline - LEFT_S:
            break
    if enqueued:
        alert(
            Severity.ERROR,
            "live charges had lost their poll and have one again: something removes jobs",
            action="scan_live",
            number=len(enqueued),
            charge_ids=enqueued[: scans.NAMES],
        )
        if page.full:
            return Again(0)
    with ctx.db.connection() as connection:
        parked = scans.scan_parked(connection, untouched=untouched)
    if parked.number:
        # Told at every look, not once: as long as it is so, nobody asks about this money.
        alert(
            Severity.ERROR,
            "the polls of live charges are parked: nobody asks their rails",
            action="scan_live_parked",
            number=parked.number,
            charge_ids=list(parked.names),
        )
    return Done()
