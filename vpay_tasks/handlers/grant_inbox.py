"""`grant_inbox`: one attempt to act on a vendor's event.

An event ends in the same commit as its job, so that whoever delivers it again finds either a
job that will run or an end to answer with, never neither. Failures are counted on the event:
its ladder has an end, and no count of a job's crashes or releases moves it.
"""

from __future__ import annotations

import random
from typing import Literal

from vpay_tasks.core import inbox as rules
from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.errors import Conflict, Severity, VpayError, describe
from vpay_tasks.handlers.context import Context
from vpay_tasks.inbox import grant
from vpay_tasks.inbox.grant import Failed, Finished, GivenUp, Granted, Ignored, Later
from vpay_tasks.store import inbox
from vpay_tasks.telemetry import alert, count, report_failure, say

LOST_RACE_S = 1.0
"""Another run moved the event under this one: look again once it has settled."""
EXHAUSTED = "attempts_exhausted"


@task(kinds.GRANT_INBOX)
def grant_inbox(job: Job, ctx: Context, *, inbox_id: int) -> Answer:
    """Payload: the row's id."""
    # Read.
    with ctx.db.connection() as connection:
        row = inbox.read(connection, inbox_id)
    if row is None or row.over:
        return Done()
    if row.wait > 0:
        return Again(row.wait)
    if job.cancelled or not job.held:
        return Again(LOST_RACE_S)  # the lease may be another's already: nothing is granted
    # Ask.
    outcome = grant.attempt(row, job, ctx.db)
    # Decide. Write. Answer.
    match outcome:
        case Finished():
            return Done()
        case Granted(by):
            with by.finishing():
                return Done()
        case Later(after):
            return Again(after)
        case Ignored():
            return _end(job, row, "ignored")
        case GivenUp(reason):
            return _dead(job, row, reason)
        case Failed(error):
            return _failed(job, ctx, row, error)


def _failed(job: Job, ctx: Context, row: inbox.Row, error: BaseException) -> Answer:
    _tell(row, error)
    delay = rules.next_delay(
        ctx.ladders.inbox,
        row.attempts,
        spread=random.random(),  # noqa: S311 - spreads a herd, hides nothing
    )
    if delay is None:
        return _dead(job, row, EXHAUSTED, error=describe(error))
    with ctx.db.connection() as connection:
        counted = inbox.fail(connection, row, error=describe(error), delay=delay)
    return Again(delay if counted else LOST_RACE_S)


def _dead(job: Job, row: inbox.Row, reason: str, *, error: str | None = None) -> Answer:
    answer = _end(job, row, "dead", reason=reason, error=error)
    alert(
        Severity.ERROR,
        "a vendor's event is dead: look, mend, and run `vpay-tasks inbox retry`",
        **{**_fields(row), "action": "inbox_dead", "reason": reason},
    )
    return answer


def _end(
    job: Job,
    row: inbox.Row,
    state: Literal["ignored", "dead"],
    *,
    reason: str | None = None,
    error: str | None = None,
) -> Answer:
    with job.finishing() as tx:
        won = inbox.end(tx, row.id, state, reason=reason, error=error, failed=error is not None)
        if not won:
            raise Conflict("the event is over already; nothing was written")
    return Done()


def _tell(row: inbox.Row, error: BaseException) -> None:
    count("inbox_failures")
    fields = {**_fields(row), "action": "inbox_failed", "attempt": row.attempts + 1}
    if isinstance(error, VpayError):
        report_failure(error, "a grant failed", **fields)
    else:
        say(Severity.ERROR, "a grant raised", **{**fields, "error": describe(error)})


def _fields(row: inbox.Row) -> dict[str, object]:
    return {
        "inbox_id": row.id,
        "vendor": row.vendor,
        "account": row.account,
        "event_id": row.event_id,
        "type": row.type,
    }
