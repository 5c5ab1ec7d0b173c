"""How the end of a run becomes the settle of its row. Pure: a table in code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from vpay_tasks.core.job import Again, Answer, Done, Park
from vpay_tasks.core.ladders import DEFAULT, Ladder
from vpay_tasks.core.task import Kind
from vpay_tasks.errors import (
    DeadReason,
    Exhausted,
    Internal,
    Retry,
    Severity,
    VpayError,
    describe,
    sanitise,
)

HOURLY: Final = 3_600.0


class Verb(Enum):
    """What a settle does to the row; the words of `settle` in jobs.sql."""

    FINISH = "finish"
    AGAIN = "again"
    """Due again, nothing counted; failures back to zero."""
    RETRY = "retry"
    """Due again after an error; failures + 1."""
    UNKNOWN = "unknown"
    """Due again because this process doesn't know the kind; nothing counted."""
    PARK = "park"


@dataclass(frozen=True)
class Ending:
    """One settle: `delay` in seconds (for the three that come back), `error` sanitised."""

    verb: Verb
    delay: float = 0.0
    error: str | None = None
    reason: DeadReason | None = None
    severity: Severity = Severity.INFO
    """Of the disposition line. What failed has had its own: only where that didn't alert
    does this one (a park)."""


FINISHED: Final = Ending(Verb.FINISH)


def ending_of_answer(kind: Kind, answer: Answer | None) -> Ending:
    """The ending of a handler that returned. None is Done."""
    match answer:
        case None | Done():
            if kind.every is not None:
                return Ending(Verb.AGAIN, delay=kind.every)
            return FINISHED
        case Again(after):
            return Ending(Verb.AGAIN, delay=after)
        case Park(text=text, reason=reason):
            told = reason is not DeadReason.BY_TASK
            return _parked(sanitise(text), reason, told=told)


def ending_of_error(
    kind: Kind,
    error: BaseException,
    failures: int,
    *,
    spread: float,
    error_ladder: Ladder,
    hourly: float = HOURLY,
) -> Ending:
    """The ending of a handler that raised (spec 6). `failures` are those before this one;
    `spread` in [0, 1) is the jitter's dice."""
    text = describe(error)
    ladder = kind.ladder if kind.ladder != DEFAULT else error_ladder
    delay = ladder.delay(failures, spread)
    if isinstance(error, VpayError):
        delay = max(delay, error.not_sooner)
    if not isinstance(error, VpayError):
        if kind.built_in:
            error = Internal(text)  # our own bug: never a merchant's ladder
        else:
            return _or_exhausted(kind, failures, Ending(Verb.RETRY, delay, text))
    if isinstance(error, Exhausted):
        return Ending(Verb.RETRY, hourly, text)
    if error.retry is Retry.BACK_OFF:
        if kind.every is not None:
            return Ending(Verb.RETRY, kind.every, text)
        return _or_exhausted(kind, failures, Ending(Verb.RETRY, delay, text))
    if kind.protected:
        # Never parked: money or a merchant waits behind it, so a person is told. Who failed
        # did not, if it calls itself the caller's fault: a payload of another release, say.
        severity = Severity.WARN if error.severity.alerts else Severity.PAGE
        return Ending(Verb.RETRY, kind.every or hourly, text, severity=severity)
    said: object = error.dead_reason  # a task's own subclass may say anything here
    reason = said if isinstance(said, DeadReason) else DeadReason.POISONED
    return _parked(text, reason, told=error.severity.alerts)


UNSETTLEABLE: Final = "the run ended in a way that can't be told"
"""Fixed: whatever the odd error says of itself is what could not be told."""


def unsettleable(kind: Kind, *, hourly: float = HOURLY) -> Ending:
    """The ending of a run whose own ending can't be computed: a bug, so the row is parked –
    or, if it must never be, comes back in an hour."""
    if kind.protected:
        return Ending(Verb.RETRY, kind.every or hourly, UNSETTLEABLE, severity=Severity.WARN)
    return _parked(UNSETTLEABLE, DeadReason.POISONED, told=True)


def ending_of_unknown_kind(unknown_for: float, *, every: float, give_up_after: float) -> Ending:
    """A rollout brings kinds before the code that runs them: wait, then park, both without
    spending an attempt. `unknown_for` is by the database's clock."""
    if unknown_for < give_up_after:
        return Ending(Verb.UNKNOWN, every)
    text = "no worker knows this kind: deploy its module, or delete the job"
    return _parked(text, DeadReason.UNKNOWN_KIND, told=False)


def _or_exhausted(kind: Kind, failures: int, ending: Ending) -> Ending:
    if kind.protected or failures + 1 < kind.max_attempts:
        return ending
    # A state of its own, whatever the last failure told.
    return _parked(ending.error, DeadReason.ATTEMPTS_EXHAUSTED, told=False)


def _parked(error: str | None, reason: DeadReason, *, told: bool) -> Ending:
    """`told`: whoever failed has alerted already, and one row is one alert."""
    severity = Severity.WARN if told else Severity.ERROR
    return Ending(Verb.PARK, error=error, reason=reason, severity=severity)
