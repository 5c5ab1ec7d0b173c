"""The pulse of one worker process: twice a second it says "I live", renews the leases of
what runs, and finds out which rows are no longer ours."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from vpay_tasks.errors import Severity, VpayError, describe
from vpay_tasks.runtime.run import Run, Running, lease_clock
from vpay_tasks.store import db, leases, workers
from vpay_tasks.telemetry import count, counts, say

EVERY_S: Final = 0.5
"""Longer: a dead worker is noticed later (spec 1: within two seconds); shorter: writes."""

RECONNECT_S: Final = 0.25

TELL_S: Final = 1.5
"""A drain waits this long for its pulse: longer than a slow one takes, short of the grace."""

RENEW_SHARE: Final = 3
"""A lease is renewed once a third of it has gone: two renewals may fail before it ends."""


class Pulse:
    """Owns the connection whose session lock proves that this process lives."""

    def __init__(
        self,
        url: str,
        worker: workers.Worker,
        running: Running,
        *,
        run_lease: float,
        session_lock: bool,
    ) -> None:
        self._url = url
        self._worker = worker
        self._running = running
        self._run_lease = run_lease
        self._session_lock = session_lock
        self._connection: db.Connection | None = None
        self._holds_lock = False
        self._recent: deque[float] = deque([0.0], maxlen=20)
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._told = threading.Event()
        self._draining = False
        self._thread = threading.Thread(target=self._loop, name="vpay-pulse", daemon=True)

    def start(self) -> None:
        """The first pulse is the caller's: before it returns, the fleet knows this process.
        Raises Storage."""
        self._beat()
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def tell_draining(self) -> None:
        """Have the fleet not count on this process any more; waits until it is written. What
        is given back before that would be claimed for this process again."""
        self._draining = True
        self._wake.set()
        self._told.wait(TELL_S)

    def stop(self) -> None:
        """Say goodbye and end."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=5)
        try:
            workers.leave(self._connected(), self._worker.id, stats=_stats())
        except VpayError as error:
            say(Severity.WARN, "the goodbye was lost", action="leave", error=describe(error))
        if self._connection is not None:
            self._connection.close()

    def _loop(self) -> None:
        lost = False
        while not self._stopping.is_set():
            self._wake.wait(RECONNECT_S if lost else EVERY_S)
            self._wake.clear()
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001 - without its pulse a process would be reaped
                count("machinery_failures")
                if not lost:
                    say(
                        Severity.ERROR,
                        "the pulse lost its connection; taking it up again",
                        action="pulse_lost",
                        error=describe(error),
                    )
                lost = True
            else:
                lost = False

    def _beat(self) -> None:
        begun = time.monotonic()
        draining = self._draining
        connection = self._connected()
        if self._session_lock and not self._holds_lock:
            # Tried, never waited for: an old session of ours may still hold it, and that
            # says "alive" just as well.
            self._holds_lock = workers.try_lock(connection, self._worker.id)
        workers.pulse(
            connection,
            self._worker,
            draining=draining,
            holds_lock=self._session_lock,
            slowest=max(self._recent),
            stats=_stats(),
        )
        if draining:
            self._told.set()
        self._renew(connection, self._running.all())
        self._recent.append(time.monotonic() - begun)

    def _renew(self, connection: db.Connection, runs: list[Run]) -> None:
        now = time.monotonic()
        ours = [run for run in runs if not (run.lost or run.settling)]
        due = [
            run
            for run in ours
            if run.over_budget_by() < 0 and now - run.renewed_at > self._run_lease / RENEW_SHARE
        ]
        if due:
            held_until = lease_clock() + self._run_lease
            renewed = leases.renew(
                connection, [(run.id, run.lease) for run in due], run_lease=self._run_lease
            )
            for run in due:
                run.renewed_at = now
                if (run.id, run.lease) in renewed:
                    run.held_until = held_until
        if not ours:
            return
        held = leases.still_held(connection, [(run.id, run.lease) for run in ours])
        for run in ours:
            if (run.id, run.lease) not in held and not run.settling:
                count("leases_lost")
                run.lose()

    def _connected(self) -> db.Connection:
        if not db.usable(self._connection):
            self._holds_lock = False
            self._connection = db.connect(
                self._url,
                application=f"vpay pulse {self._worker.id}",
                lock_timeout=1.0,
                statement_timeout=1.0,
            )
        return self._connection


def _stats() -> dict[str, object]:
    return {"counters": counts()}
