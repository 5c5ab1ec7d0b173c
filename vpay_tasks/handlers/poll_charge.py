"""poll_charge: ask the rail what became of one charge, until it says so."""

from __future__ import annotations

from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.answers import Failed, Succeeded
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.recovery import Advance, Ask, FailDeadOrder, FailDeclined, Resubmit, Wait
from vpay_tasks.core.task import task
from vpay_tasks.core.verdict import (
    Contradiction,
    CountNotFound,
    Nothing,
    Settle,
    Stay,
    ToPending,
)
from vpay_tasks.errors import VpayError
from vpay_tasks.handlers.context import Context
from vpay_tasks.payments import poll, settlement

WRITING_S: Final = 10.0
"""Of the run's budget, kept for writing the answer down: a rail that takes longer than the
rest is cut off, or the settle would come from a run that lost its lease."""


@task(kinds.POLL_CHARGE)
def poll_charge(job: Job, ctx: Context, charge_id: str, recheck: bool = False) -> Answer:
    """Ends, or comes back by the poll ladder. `recheck` asks once about a failed charge: so
    a rail that changed its mind is seen. Not about a succeeded one: that a rail takes paid
    back is seen only by a poll that was on its way, when it loses its settlement."""
    # Read.
    sight = poll.look(ctx.db, charge_id)
    charge = sight.charge
    deadline = job.deadline - WRITING_S
    if charge.state.terminal:
        if recheck and charge.state is State.FAILED:
            poll.recheck(ctx.db, ctx.rails, charge, deadline=deadline)
        return Done()
    rail = poll.rail_or_silence(charge, ctx.rails)
    if isinstance(rail, poll.Unanswered):
        return _later(ctx, sight, rail)
    recovery = sight.recovery(rail.flow, ctx.windows)
    match recovery:
        case Wait(seconds):
            return Again(seconds)
        case Advance():
            poll.advance(ctx.db, charge, rail.flow)
            return Again(0)
        case FailDeclined() | FailDeadOrder():
            return Done() if poll.fail(ctx.db, charge, recovery) else Again(0)
        case Resubmit() if poll.resubmit(ctx.db, sight):
            return _later(ctx, sight, recovery)
        case Resubmit() | Ask() | None:
            pass  # a resubmit that something keeps must not keep the poll, too
    # Ask.
    answer = poll.ask(ctx.db, rail, charge, deadline=deadline)
    # Decide.
    news = poll.judge(answer, charge.state)
    # Write. Answer.
    match news:
        case Settle(outcome):
            return _settle(job, ctx, charge, outcome)
        case Contradiction() | Nothing():
            return Done()  # of charges that are over, which came back above
        case ToPending() | Stay() | CountNotFound() | poll.Unanswered():
            return _later(ctx, sight, news)


def _later(ctx: Context, sight: poll.Sight, news: poll.News) -> Again:
    return Again(poll.note(ctx.db, sight, news, windows=ctx.windows, ladders=ctx.ladders))


def _settle(job: Job, ctx: Context, charge: Charge, outcome: Succeeded | Failed) -> Done:
    first = False
    try:
        with job.finishing() as tx:
            if not settlement.settle(tx, charge, outcome):
                # With the job's end or not at all: nobody would have the rail's word again.
                first = poll.compared(tx, charge, outcome)
    except VpayError:  # LeaseLost above all: another run may have settled it
        poll.compare(ctx.db, charge, outcome)
        raise
    if first:
        poll.page(charge, outcome)
    return Done()
