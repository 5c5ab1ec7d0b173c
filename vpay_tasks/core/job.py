"""What a handler is given and what it may answer."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from vpay_tasks.errors import DeadReason


@dataclass(frozen=True)
class Done:
    """The job is over; a schedule's job comes back at its next interval."""


@dataclass(frozen=True)
class Again:
    """Run again `after` seconds. Not a failure: nothing is counted against the job."""

    after: float

    def __post_init__(self) -> None:
        # NaN compares false with everything, so it fails here too.
        if not 0 <= self.after <= 366 * 86_400:
            raise ValueError(f"Again(after={self.after!r}): 0 to 366 days, in seconds")


@dataclass(frozen=True)
class Park:
    """Give up: the row is kept as a dead letter with `text`, until an operator acts."""

    text: str
    reason: DeadReason = field(default=DeadReason.BY_TASK, kw_only=True)
    """Another one is for the built-in kinds, which have told what they found themselves."""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"Park(text={self.text!r}): say why, in words")


Answer = Done | Again | Park


class Job(Protocol):
    """One run of one job. Passed to the handler; valid only while it runs."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def attempt(self) -> int:
        """1 plus the consecutive failures so far."""

    @property
    def deadline(self) -> float:
        """The instant of `time.monotonic()` at which the budget is spent."""

    @property
    def cancelled(self) -> bool:
        """True once the budget is spent, the lease is lost, or the process drains out.
        A handler that loops looks at it; nothing else stops it."""

    @property
    def held(self) -> bool:
        """Whether this run surely still has its lease, by a clock of its own that goes on
        while the process is stopped. False for a run that woke up too late, before anybody
        could tell it so: what must not be done beside another run begins only while it is."""

    def finishing(self) -> AbstractContextManager[Any]:
        """A transaction (a psycopg connection) whose commit also finishes this job.

        The finish runs last: if the row is no longer this run's, everything in the block
        is rolled back and LeaseLost raised. After it committed, what the handler answers
        or raises is logged and not settled again.
        """
