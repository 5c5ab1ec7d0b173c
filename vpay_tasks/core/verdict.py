"""The verdict: what a rail's answer means for a charge in a state. Total, a table in code."""

from __future__ import annotations

from dataclasses import dataclass

from vpay_tasks.core.answers import Failed, NotFound, Pending, StatusAnswer, Succeeded
from vpay_tasks.core.charge import State


@dataclass(frozen=True)
class Settle:
    """The charge ends as the rail says."""

    outcome: Succeeded | Failed


@dataclass(frozen=True)
class ToPending:
    """The rail has it and the payer is being asked."""


@dataclass(frozen=True)
class Stay:
    """Nothing new; ask again later."""


@dataclass(frozen=True)
class CountNotFound:
    """The rail doesn't know it, though it should: one more of a streak; the state stays."""


@dataclass(frozen=True)
class Contradiction:
    """The rail says the opposite of what was settled: moves nothing, pages once."""


@dataclass(frozen=True)
class Nothing:
    """The charge is over, and the answer is no news."""


Verdict = Settle | ToPending | Stay | CountNotFound | Contradiction | Nothing


def verdict(answer: StatusAnswer, state: State) -> Verdict:
    """The row of the answer, the column of the state (spec 2, Verdict)."""
    match answer:
        case Pending():
            return _of_pending(state)
        case Succeeded():
            return _of_succeeded(answer, state)
        case Failed():
            return _of_failed(answer, state)
        case NotFound():
            return _of_not_found(state)


def _of_pending(state: State) -> Verdict:
    match state:
        case State.SUBMITTING | State.SUBMITTED:
            return ToPending()
        case State.PENDING | State.UNRESOLVED:
            return Stay()
        case State.SUCCEEDED | State.FAILED:
            return Nothing()


def _of_succeeded(answer: Succeeded, state: State) -> Verdict:
    match state:
        case State.SUBMITTING | State.SUBMITTED | State.PENDING | State.UNRESOLVED:
            return Settle(answer)
        case State.SUCCEEDED:
            return Nothing()
        case State.FAILED:
            return Contradiction()


def _of_failed(answer: Failed, state: State) -> Verdict:
    match state:
        case State.SUBMITTING | State.SUBMITTED | State.PENDING | State.UNRESOLVED:
            return Settle(answer)
        case State.SUCCEEDED:
            return Contradiction()
        case State.FAILED:
            return Nothing()


def _of_not_found(state: State) -> Verdict:
    match state:
        case State.SUBMITTING | State.SUBMITTED:
            # In `submitting` the streak is what recovery reads before it resubmits.
            return CountNotFound()
        case State.PENDING | State.UNRESOLVED:
            # The rail had it once: its forgetting says nothing about the money.
            return Stay()
        case State.SUCCEEDED | State.FAILED:
            return Nothing()
