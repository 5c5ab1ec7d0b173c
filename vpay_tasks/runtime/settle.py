"""Settling, group by group: whatever has ended since the last commit goes into the next.

One thread and one connection per process. A flush never waits for company; while one is on
its way, others gather. A group that fails is settled one by one, so that a bad row can't
hold its mates; a row that time may heal is tried until its lease is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vpay_tasks.core.settling import HOURLY, Ending, Verb
from vpay_tasks.core.task import Registry
from vpay_tasks.errors import (
    AmbiguousCommit,
    DeadReason,
    LeaseLost,
    Severity,
    Storage,
    VpayError,
    describe,
)
from vpay_tasks.runtime.run import Run
from vpay_tasks.store import db, settles, sql
from vpay_tasks.telemetry import alert, count, report_failure, say

GROUP_MAX: Final = 500
"""Rows in one statement: 6.5 ms. Larger ones hold row locks for no further gain."""

LOCK_TIMEOUT_S: Final = 1.0
"""Somebody holds a row: its mates wait this long at the most, then go one by one."""

RETRY_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)

POISONED_TEXT: Final = "the settle itself was refused as bad data"
"""Fixed: the text that made the statement fail must not go into the next one."""


class Awaited:
    """All settles of one message, as its thread waits for them: it is woken once, by the last,
    and not by each – a wake-up costs more than a settle does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0
        self._over = threading.Event()
        self._over.set()

    def expect(self) -> None:
        """One more is on its way."""
        with self._lock:
            if self._left == 0:
                self._over.clear()
            self._left += 1

    def one_over(self) -> None:
        """Call it once for each that was expected (see `Pending.over`)."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._over.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Until all that were expected are over; False when `timeout` seconds were not enough."""
        return self._over.wait(timeout)


@dataclass(slots=True, eq=False)
class Pending:
    """One row's settle on its way; `awaited` is told once its end is known."""

    run: Run
    ending: Ending
    awaited: Awaited
    tries: int = 0
    ambiguous: bool = False
    """A commit of it has lost its answer: it is looked for before it is sent again."""
    not_before: float = 0.0
    told: bool = False

    def over(self) -> None:
        """Nothing more becomes of it here. Said twice, after a failure in the middle of a
        group, it must not pass for a mate's."""
        if not self.told:
            self.told = True
            self.awaited.one_over()

    @property
    def settle(self) -> settles.Settle:
        return settles.Settle(self.run.id, self.run.lease, self.ending)


class Settler:
    """`submit` hands an ending over; its message is acknowledged after a wait for it."""

    def __init__(self, url: str, registry: Registry, *, application: str) -> None:
        self._url = url
        self._registry = registry
        self._application = f"{application} settle"
        self._connection: db.Connection | None = None
        self._queue: list[Pending] = []
        self._delayed: list[Pending] = []
        self._wake = threading.Condition()
        self._closing = False
        self._failing = False
        self._thread = threading.Thread(target=self._loop, name="vpay-settle", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, run: Run, ending: Ending, awaited: Awaited) -> Pending:
        """Settle `run` by `ending`, soon; `awaited` is told of its end."""
        run.settling = True
        awaited.expect()
        pending = Pending(run, ending, awaited)
        with self._wake:
            self._queue.append(pending)
            self._wake.notify()
        return pending

    def close(self) -> None:
        """Settle what is left and end."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=5)

    def _loop(self) -> None:
        while group := self._next():
            try:
                self._settle(group)
            except Exception as error:  # noqa: BLE001 - this thread settles for the whole process
                count("machinery_failures")
                report_failure(error, "settling failed; the leases decide", action="settle")
                for pending in group:
                    pending.over()
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> list[Pending]:
        """What is due to be settled; waits for something. Empty: it is time to end."""
        with self._wake:
            while True:
                now = time.monotonic()
                if self._delayed:
                    due = [pending for pending in self._delayed if pending.not_before <= now]
                    self._delayed = [p for p in self._delayed if p.not_before > now]
                    self._queue = due + self._queue
                if self._queue:
                    group, self._queue = self._queue[:GROUP_MAX], self._queue[GROUP_MAX:]
                    return group
                if self._closing and not self._delayed:
                    return []
                next_at = min((p.not_before for p in self._delayed), default=None)
                self._wake.wait(None if next_at is None else max(0.0, next_at - now))

    def _settle(self, group: Sequence[Pending]) -> None:
        fresh = [pending for pending in group if not pending.ambiguous]
        for pending in group:
            if pending.ambiguous:
                self._resolve(pending)
        if fresh:
            self._flush(fresh)

    def _flush(self, group: Sequence[Pending]) -> None:
        try:
            stood = settles.settle(self._connected(), [pending.settle for pending in group])
        except AmbiguousCommit as error:
            self._ambiguous(group, error)
        except Exception as error:  # noqa: BLE001 - one odd ending must not hold the others
            if len(group) > 1 and not self._unreachable():
                for pending in group:
                    self._flush([pending])
            else:
                self._failed(group, error)
        else:
            count("settle_groups")
            count("settle_group_jobs", len(group))
            for pending, won in zip(group, stood, strict=True):
                self._ended(pending, won=won)
            self._failing = False

    def _failed(self, group: Sequence[Pending], error: Exception) -> None:
        if len(group) == 1 and (not isinstance(error, VpayError) or sql.is_bad_data(error)):
            self._poisoned(group[0], error)
            return
        if not self._failing:
            report_failure(error, "a settle could not run; trying again", action="settle")
            count("machinery_failures")
        self._failing = True
        for pending in group:
            self._later(pending)

    def _poisoned(self, pending: Pending, error: Exception) -> None:
        """The row's own data was refused: no repetition can succeed."""
        run = pending.run
        if pending.ending.error == POISONED_TEXT:
            # Even the fixed text was refused: let the lease end and another run try.
            self._ended(pending, won=False)
            return
        alert(
            Severity.PAGE,
            "a settle was refused as bad data",
            action="settle_poisoned",
            job_id=run.id,
            kind=run.kind,
            error=describe(error),
        )
        task = self._registry.get(run.kind)
        if task is not None and task.kind.protected:
            pending.ending = Ending(Verb.RETRY, task.kind.every or HOURLY, POISONED_TEXT)
        else:
            pending.ending = Ending(
                Verb.PARK,
                error=POISONED_TEXT,
                reason=DeadReason.POISONED,
                severity=Severity.WARN,  # told above
            )
        self._later(pending)

    def _ambiguous(self, group: Sequence[Pending], error: VpayError) -> None:
        """The commit's answer was lost: look at each row once its old backend is done."""
        say(
            Severity.WARN,
            "a settle's commit lost its answer; looking again",
            action="settle_ambiguous",
            jobs=len(group),
            error=describe(error),
        )
        for pending in group:
            count("settles_ambiguous")
            pending.ambiguous = True
            self._resolve(pending)

    def _resolve(self, pending: Pending) -> None:
        try:
            end = self._look_again(pending)
        except VpayError:
            self._later(pending)  # still out of reach: look again, before anything is sent
            return
        if end is None:
            pending.ambiguous = False
            self._later(pending)
        else:
            self._ended(pending, won=end)

    def _look_again(self, pending: Pending) -> bool | None:
        """True: ours stands. False: it can't be told, or another run's. None: not written."""
        seen = settles.look_again(self._connected(), pending.run.id)
        if seen is not None and seen.lease == pending.run.lease:
            return None
        if seen is not None and seen.settled_by == pending.run.lease:
            return True
        count("ambiguous_unknown")
        return seen is None and pending.ending.verb is Verb.FINISH

    def _later(self, pending: Pending) -> None:
        pause = RETRY_S[min(pending.tries, len(RETRY_S) - 1)]
        pending.tries += 1
        pending.not_before = time.monotonic() + pause
        with self._wake:
            self._delayed.append(pending)

    def _ended(self, pending: Pending, *, won: bool) -> None:
        tell_settled(pending.run, pending.ending, won=won)
        pending.over()

    def _connected(self) -> db.Connection:
        if not db.usable(self._connection):
            self._connection = db.connect(
                self._url,
                application=self._application,
                lock_timeout=LOCK_TIMEOUT_S,
                plans=db.RUN_PLANS,
            )
        return self._connection

    def _unreachable(self) -> bool:
        return self._connection is None or sql.broken(self._connection)


def tell_settled(run: Run, ending: Ending, *, won: bool) -> None:
    """Count the settle, and say what became of the job where a person would ask."""
    if not won:
        count("settles_lost")
        say(
            Severity.WARN,
            "a settle found its lease gone",
            action="settle_lost",
            job_id=run.id,
            kind=run.kind,
        )
        return
    match ending.verb:
        case Verb.FINISH:
            count("jobs_finished")
        case Verb.AGAIN | Verb.RETRY | Verb.UNKNOWN:
            count("jobs_rescheduled")
        case Verb.PARK:
            count("jobs_parked")
    if ending.verb is Verb.RETRY or ending.reason is not None:
        tell = alert if ending.severity.alerts else say
        tell(
            ending.severity,
            "the job was parked" if ending.reason is not None else "the job comes back",
            action="disposition",
            job_id=run.id,
            kind=run.kind,
            attempt=run.attempt,
            delay=round(ending.delay, 3),
            reason=ending.reason.value if ending.reason is not None else None,
        )


def finish_within(tx: sql.Connection, run: Run, ending: Ending) -> str | None:
    """Settle `run` as the last statement of its handler's own transaction: the transaction's
    number, for `finish_stands`. None: the row is no longer this run's."""
    won = all(settles.settle(tx, [settles.Settle(run.id, run.lease, ending)]))
    return settles.own_transaction(tx) if won else None


def finish_stands(connection: sql.Connection, run: Run, transaction: str) -> None:
    """Return when an ambiguous `finishing()` was committed. Raises Storage when nothing was
    written – the job runs again, it is never finished alone – and LeaseLost when another run
    has the row, or has ended it."""
    seen = settles.look_again(connection, run.id)
    count("settles_ambiguous")
    if seen is not None and seen.settled_by == run.lease:
        return
    if seen is not None and seen.lease == run.lease:
        raise Storage("the commit of finishing() did not happen; the job runs again")
    # A row that is gone may have been finished by whoever took it over, and not by this run.
    if not settles.was_committed(connection, transaction):
        raise LeaseLost("another run took the job over; nothing was written")
