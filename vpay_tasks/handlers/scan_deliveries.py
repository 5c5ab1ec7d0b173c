"""`scan_deliveries`: pending deliveries that lost their jobs get new ones."""

from __future__ import annotations

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.handlers.context import Context
from vpay_tasks.webhooks import backstop


@task(kinds.SCAN_DELIVERIES)
def scan_deliveries(job: Job, ctx: Context) -> Answer:
    """All of them in one run, page by page: the next run is an interval away."""
    backstop.scan(ctx.db, go_on=lambda: not job.cancelled)
    return Done()
