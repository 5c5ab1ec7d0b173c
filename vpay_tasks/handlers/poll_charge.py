"""poll_charge: ask the rail what became of one charge, until it says so."""

from __future__ import annotations

from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.answers import Failed, Succeeded
from vpay_tasks.core.charge import Charge, FailureCode, State
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
from vpay_tasks.handlers.context import Context
from vpay_tasks.payments import poll, settlement

WRITING_S: Final = 10.0
"""Of the run's budget, kept for writing the answer down: a rail that takes longer than the
rest is cut off, or the settle would come from a run that lost its lease."""


@task(kinds.POLL_CHARGE)
def poll_charge(job: Job, ctx: Context, charge_id: str, recheck: bool = False) -> Answer:
    """Ends, or comes back by the poll ladder. `recheck` asks once about a failed charge: so
    a rail that changed its mind is seen."""
    # Read.
    sight = poll.look(ctx.db, charge_id)
    charge = sight.charge
    if charge.state.terminal and not (recheck and charge.state is State.FAILED):
        return Done()
    rail = poll.rail_of(charge, ctx.rails)
    recovery = sight.recovery(rail.flow, ctx.windows.recovery)
    match recovery:
        case Wait(seconds):
            return Again(seconds)
        case Advance():
            poll.advance(ctx.db, charge, rail.flow)
            return Again(0)
        case FailDeclined(code):
            return _settle(job, charge, Failed(code, ""))
        case FailDeadOrder():
            return _settle(job, charge, Failed(FailureCode.PROVIDER_UNAVAILABLE, ""))
        case Resubmit() | Ask() | None:
            pass
    # Ask.
    answer = poll.ask(rail, charge, deadline=job.deadline - WRITING_S)
    # Decide.
    news = poll.judge(recovery, answer, charge.state)
    # Write. Answer.
    match news:
        case Settle(outcome):
            return _settle(job, charge, outcome)
        case Contradiction():
            poll.contradict(ctx.db, charge)
            return Done()
        case Nothing():
            return Done()
        case ToPending() | Stay() | CountNotFound() | poll.Unanswered():
            return Again(poll.note(ctx.db, sight, news, windows=ctx.windows, ladders=ctx.ladders))


def _settle(job: Job, charge: Charge, outcome: Succeeded | Failed) -> Done:
    with job.finishing() as tx:
        settlement.settle(tx, charge, outcome)
    return Done()
