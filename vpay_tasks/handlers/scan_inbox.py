"""`scan_inbox`: kept events that wait without a job get one."""

from __future__ import annotations

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.errors import Severity
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import inbox
from vpay_tasks.telemetry import say


@task(kinds.SCAN_INBOX)
def scan_inbox(_job: Job, ctx: Context) -> Answer:
    """A page per run; again at once only if it was full."""
    with ctx.db.connection() as connection:
        queued = inbox.scan(connection)
    if queued:
        say(
            Severity.WARN,
            "events of the inbox had no job and have one again",
            action="scan_inbox",
            events=len(queued),
        )
    return Again(0) if len(queued) == inbox.PAGE else Done()
