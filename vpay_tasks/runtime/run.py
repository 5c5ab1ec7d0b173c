"""One run of one job, and the process's list of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from vpay_tasks.store.jobs import StartedJob


def lease_clock() -> float:
    """Seconds that also pass while this process is stopped or the machine sleeps: a lease in
    the database does not wait for either."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Run:
    """A started row while this process holds it: the `Job` that its handler sees.

    Written by the thread that runs it; the pulse and the watchdog only set `lost` and
    `cancelled`, which never go back.
    """

    __slots__ = (
        "_finishing",
        "begun",
        "budget",
        "cancelled",
        "deadline",
        "held_until",
        "id",
        "kind",
        "lease",
        "lost",
        "renewed_at",
        "row",
        "settled",
        "settling",
    )

    def __init__(
        self,
        row: StartedJob,
        finishing: Callable[[Run], AbstractContextManager[Any]],
        *,
        held_until: float,
    ) -> None:
        self.row = row
        self.id = row.id
        self.kind = row.kind
        self.lease = row.lease
        self.begun = False
        self.budget = 0.0
        self.deadline = float("inf")
        self.renewed_at = time.monotonic()
        self.held_until = held_until
        """When the lease ends at the earliest, by `lease_clock`: counted from before the
        statement that gave or renewed it was sent."""
        self.lost = False
        self.settling = False
        """From the moment its settle is on its way: a row found gone is then no loss."""
        self.settled = False
        """Set once `finishing()` has committed; what the handler says after it is only told."""
        self.cancelled = False
        self._finishing = finishing

    @property
    def attempt(self) -> int:
        return self.row.failures + 1

    @property
    def held(self) -> bool:
        return not self.cancelled and lease_clock() < self.held_until

    def finishing(self) -> AbstractContextManager[Any]:
        return self._finishing(self)

    def begin(self, budget: float) -> None:
        """The handler is about to be called; its budget of `budget` seconds starts now."""
        self.begun = True
        self.budget = budget
        self.deadline = time.monotonic() + budget

    def end(self) -> None:
        """The handler has returned; no budget can be overrun any more."""
        self.deadline = float("inf")

    def cancel(self) -> None:
        self.cancelled = True

    def over_budget_by(self) -> float:
        """Seconds since the deadline; negative before it."""
        return time.monotonic() - self.deadline

    def lose(self) -> None:
        """The row belongs to somebody else now."""
        self.lost = True
        self.cancel()


class Running:
    """The runs of this process, from their start to their settle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Each for itself: a stuck run whose row was started here again is still seen.
        self._runs: set[Run] = set()

    def add(self, runs: Iterable[Run]) -> None:
        with self._lock:
            self._runs.update(runs)

    def remove(self, runs: Iterable[Run]) -> None:
        with self._lock:
            self._runs.difference_update(runs)

    def all(self) -> list[Run]:
        with self._lock:
            return list(self._runs)
