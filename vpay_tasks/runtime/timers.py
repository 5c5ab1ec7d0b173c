"""What a dispatcher does by the clock: reap, seed, listen. Each is a thread with a
connection of its own that outlives any failure of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeGuard

from vpay_tasks.core.kinds import BUILT_IN
from vpay_tasks.core.task import Registry
from vpay_tasks.errors import Severity
from vpay_tasks.store import db, jobs, leases, sql, workers
from vpay_tasks.telemetry import alert, count, report_failure, say

RECONNECT_S: Final = 0.5

GONE_EVERY_S: Final = 0.2
"""Rows of dead workers. Silence (1.2 s) plus this plus a look for what is due stay below two
seconds. Longer: a killed worker's jobs wait; shorter: questions, from each dispatcher."""

EXPIRED_EVERY_S: Final = 5.0
SEED_EVERY_S: Final = 10.0
LISTEN_S: Final = 5.0
"""A connection that only listens notices its server's death by asking now and then."""

PAGE: Final = 500


class Timer:
    """Calls `work(connection)` for ever; it answers the seconds until the next time."""

    def __init__(
        self,
        name: str,
        url: str,
        work: Callable[[db.Connection], float],
        *,
        listens: bool = False,
    ) -> None:
        self._name = name
        self._listens = listens
        self._url = url
        self._work = work
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=f"vpay-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        # A listener may sit in its wait for longer; it dies with the process, holding nothing.
        self._thread.join(timeout=1)

    def _loop(self) -> None:
        connection: db.Connection | None = None
        pause, failing = 0.0, False
        while not self._stopping.wait(pause):
            try:
                if not self._usable(connection):
                    connection = db.connect(self._url, application=f"vpay {self._name}")
                pause = self._work(connection)
                failing = False
            except Exception as error:  # noqa: BLE001 - a timer that ends would end it silently
                count("machinery_failures")
                if not failing:
                    report_failure(error, "a timer could not run; trying again", timer=self._name)
                pause, failing = RECONNECT_S, True
        if connection is not None:
            connection.close()

    def _usable(self, connection: db.Connection | None) -> TypeGuard[db.Connection]:
        if self._listens:
            # A notification that waits to be read looks like a server that hung up.
            return connection is not None and not sql.broken(connection)
        return db.usable(connection)


class Reaper:
    """Frees rows past their lease and rows of dead workers. Several may run: each pass is
    one statement that skips what another one holds."""

    def __init__(self, registry: Registry) -> None:
        # Also those built-in ones that this release doesn't run yet: a newer one beside it does.
        kinds = [*BUILT_IN.values(), *(task.kind for task in registry)]
        self._protected = sorted({kind.name for kind in kinds if kind.protected})
        self._expired_at = 0.0

    def __call__(self, connection: db.Connection) -> float:
        reaped = leases.reap_gone(connection, protected=self._protected)
        now = time.monotonic()
        if now >= self._expired_at:
            late = leases.reap_expired(connection, protected=self._protected)
            reaped += late
            if len(late) < PAGE:
                self._expired_at = now + EXPIRED_EVERY_S
        for row in reaped:
            self._tell(row)
        return 0.0 if len(reaped) >= PAGE else GONE_EVERY_S

    def _tell(self, row: leases.Reaped) -> None:
        count(f"reaped_{row.why}")
        fields = {
            "action": "reap",
            "job_id": row.id,
            "kind": row.kind,
            "queue": row.queue,
            "why": row.why,
            "crashes": row.crashes,
        }
        if row.parked:
            alert(Severity.ERROR, "a job that keeps crashing was parked", **fields)
        elif row.why != "claim_expired" and row.crashes >= leases.MAX_CRASHES:
            alert(Severity.PAGE, "a protected job keeps crashing its processes", **fields)
        else:
            say(Severity.WARN, "a job was freed", **fields)


class Seeder:
    """Keeps every singleton's row there, adopts rows of kinds that are known by now, and
    forgets dead workers."""

    def __init__(self, registry: Registry, *, also: Callable[[db.Connection], None]) -> None:
        self._singletons = [task.kind for task in registry if task.kind.singleton]
        self._known = registry.names()
        self._also = also

    def __call__(self, connection: db.Connection) -> float:
        for kind in self._singletons:
            jobs.enqueue(connection, kind, {}, dedupe_key=kind.singleton)
        for id_ in jobs.adopt_unknown(connection, self._known):
            say(Severity.INFO, "a job of a kind now known runs again", action="adopt", job_id=id_)
        workers.sweep_dead(connection)
        self._also(connection)
        return SEED_EVERY_S


class Listener:
    """Turns notifications into a wake-up. After every (re)connect it wakes once: what was
    notified meanwhile is gone, and the scan finds it."""

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self._listening: db.Connection | None = None

    def __call__(self, connection: db.Connection) -> float:
        if self._listening is not connection:
            jobs.listen(connection)
            self._listening = connection
            self._wake.set()
        if db.notified(connection, timeout=LISTEN_S):
            self._wake.set()
        return 0.0
