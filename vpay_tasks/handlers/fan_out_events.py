"""`fan_out_events`: pending events become deliveries and their jobs."""

from __future__ import annotations

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.handlers.context import Context
from vpay_tasks.webhooks import fanout


@task(kinds.FAN_OUT_EVENTS)
def fan_out_events(_job: Job, ctx: Context) -> Answer:
    """One page per run: a backlog leaves the thread to others between its pages."""
    return Again(0) if fanout.drain(ctx.db, ctx.endpoints).again_now else Done()
