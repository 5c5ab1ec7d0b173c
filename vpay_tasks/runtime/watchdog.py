"""What ends a process that can no longer do its work: a handler that is stuck past its
budget, worker threads that have died. Needs no database: it must also work without one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NoReturn

from vpay_tasks.errors import Severity
from vpay_tasks.runtime.run import Run, Running
from vpay_tasks.telemetry import alert, count

EVERY_S: Final = 0.5

STUCK_S: Final = 30.0
"""From a job's cancelling to the end of its process. Lower: a handler that is just leaving
takes its neighbours down; higher: a thread is lost for longer."""


class Watchdog:
    """Cancels what is over its budget, and ends the process when that doesn't help.

    `give_up(stuck)` must not return: it hands the other runs' leases back and exits.
    `dead_threads()` names the threads that should live and don't.
    """

    def __init__(
        self,
        running: Running,
        *,
        dead_threads: Callable[[], list[str]],
        give_up: Callable[[list[Run]], NoReturn],
        stuck_after: float = STUCK_S,
    ) -> None:
        self._running = running
        self._dead_threads = dead_threads
        self._give_up = give_up
        self._stuck_after = stuck_after
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="vpay-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=2)

    def _loop(self) -> None:
        while not self._stopping.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        """One look; ends the process if it must."""
        stuck = []
        for run in self._running.all():
            over = run.over_budget_by()
            if over >= 0 and not run.cancelled:
                run.cancel()
                count("over_budget")
                alert(
                    Severity.ERROR,
                    "a job is over its budget; it was cancelled and its lease runs out",
                    action="over_budget",
                    job_id=run.id,
                    kind=run.kind,
                    budget=run.budget,
                )
            if over >= self._stuck_after:
                stuck.append(run)
        if stuck:
            alert(
                Severity.PAGE,
                "a cancelled job doesn't end: this process does, and is started anew",
                action="stuck",
                job_id=stuck[0].id,
                kind=stuck[0].kind,
            )
            self._give_up(stuck)
        if dead := self._dead_threads():
            alert(
                Severity.PAGE,
                "threads of this process have died: it ends, and is started anew",
                action="dead_threads",
                threads=dead,
            )
            self._give_up([])
