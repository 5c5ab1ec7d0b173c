"""resubmit_charge: send one charge's submit again, once. What became of it is the poll's."""

from __future__ import annotations

import time

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.handlers.context import Context
from vpay_tasks.payments import resubmit, submission
from vpay_tasks.payments.submission import BOOKKEEPING_S


@task(kinds.RESUBMIT_CHARGE)
def resubmit_charge(job: Job, ctx: Context, charge_id: str, seen: int) -> Done:
    """One call at most, in all runs of the job together; `seen` is how many submits the poll
    that asked for it knew. Done whatever the rail answers."""
    # One deadline from before the state is looked at, as a confirm has it: a process that was
    # stopped and wakes behind it sends nothing.
    deadline = time.monotonic() + ctx.windows.submit_deadline
    deadline = min(deadline, job.deadline - BOOKKEEPING_S)
    # Read.
    submit = resubmit.read(ctx.db, ctx.rails, charge_id)
    if submit is None:
        return Done()
    attempt = submission.begin(ctx.db, submit.charge, seen, lambda: deadline - time.monotonic())
    if attempt is None:
        return Done()
    # Ask.
    answer = resubmit.send(submit, seen=seen, deadline=deadline)
    # Write. Answer.
    resubmit.write(ctx.db, submit, attempt, answer)
    return Done()
