"""Recovery: what to do about a charge that is still `submitting`. One pure function.

A confirm died, or its call was not answered: the rail may have the payment, and the payer
a prompt. Nothing here asserts what a timer could only guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vpay_tasks.core.charge import Attempt, AttemptClass, FailureCode, Flow

STREAK: Final = 3
"""NotFounds in a row before the same reference is submitted again. Fewer would act on one
lagging replica of the rail's."""


@dataclass(frozen=True)
class Wait:
    """The confirm may still be at work: touch nothing, ask nothing, come back."""

    seconds: float


@dataclass(frozen=True)
class Advance:
    """The rail has accepted; only our own bookkeeping is missing."""


@dataclass(frozen=True)
class FailDeclined:
    """The rail has declined; only our own bookkeeping is missing."""

    code: FailureCode
    raw: str = field(default="", repr=False)


@dataclass(frozen=True)
class FailDeadOrder:
    """The payer never had a URL, and the token to ask with is lost: nobody can pay it."""


@dataclass(frozen=True)
class Resubmit:
    """The rail does not have it: submit the same reference again."""


@dataclass(frozen=True)
class Ask:
    """The rail may have it: ask before anything else."""


Recovery = Wait | Advance | FailDeclined | FailDeadOrder | Resubmit | Ask


def recover(
    flow: Flow,
    attempts: Sequence[Attempt],
    *,
    age: float,
    window: float,
    not_found_window: float,
    has_key_material: bool,
    not_found_streak: int = 0,
    not_found_for: float = 0.0,
) -> Recovery:
    """The first line of spec 2's table that fits. `age` is the charge's and `not_found_for`
    the time since the first NotFound of the streak, both in seconds by the database's
    clock; `window` is how long a charge belongs to its confirm, `not_found_window` how long
    the streak must have lasted, too: three answers within a second are one answer."""
    if age < window:
        # Clamped: a clock that was set back must not make it wait for a day.
        return Wait(min(max(window - age + 1, 0.0), window + 1))
    answers = [attempt.answer for attempt in attempts]
    if AttemptClass.ACCEPTED in answers and (flow is Flow.PUSH or has_key_material):
        return Advance()
    if (declined := declined_by_all(attempts)) is not None:
        return declined
    match flow:
        case Flow.REDIRECT:
            return FailDeadOrder()
        case Flow.PUSH:
            if not attempts:
                return Resubmit()
            if not_found_streak >= STREAK and not_found_for >= not_found_window:
                return Resubmit()
            return Ask()


def declined_by_all(attempts: Sequence[Attempt]) -> FailDeclined | None:
    """What the last decline says, if every attempt was declined: beside one that is unknown
    or unanswered it decides nothing, for the payer may hold the other prompt."""
    declined = [
        FailDeclined(attempt.code, attempt.detail)
        for attempt in attempts
        if attempt.answer is AttemptClass.DECLINED and attempt.code is not None
    ]
    return declined[-1] if declined and len(declined) == len(attempts) else None
