"""The end of a worker process: what was not begun is handed back at the signal, what runs
may finish until the grace is over, what is left then is handed back and abandoned.

Dramatiq's own timer can't decide this: it defaults to ten minutes and then reports success.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final, NoReturn

from vpay_tasks.errors import Severity
from vpay_tasks.telemetry import alert, flush_alerts, report_failure, say

TWICE_S: Final = 1.0
"""A process group's signal arrives twice: from the sender, and forwarded by the master. A
second one within this time is the same one."""


class Drain:
    """Chains itself before the handlers that stand. Made in the main thread."""

    def __init__(
        self,
        *,
        grace: float,
        begin: Callable[[], None],
        still_running: Callable[[], int],
        abandon: Callable[[], None],
    ) -> None:
        self._grace = grace
        self._begin = begin
        self._still_running = still_running
        self._abandon = abandon
        self._signalled_at: float | None = None
        self._signalled = threading.Event()
        self._over = threading.Event()
        self._previous: dict[int, Any] = {}

    @property
    def signalled(self) -> bool:
        return self._signalled_at is not None

    def install(self, signals: Iterable[signal.Signals]) -> None:
        # Started before the signal: a handler interrupts the main thread anywhere, also where
        # it holds what the start of a thread needs.
        threading.Thread(target=self._drain, name="vpay-drain", daemon=True).start()
        for number in signals:
            self._previous[number] = signal.signal(number, self._handle)

    def over(self) -> None:
        """Everything has ended in good order; the grace timer may go."""
        self._over.set()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
            self._signalled.set()
        elif now - self._signalled_at < TWICE_S:
            return
        else:
            os._exit(1)
        previous = self._previous.get(number)
        if callable(previous):
            previous(number, frame)

    def _drain(self) -> None:
        self._signalled.wait()
        ends_at = time.monotonic() + self._grace
        say(Severity.INFO, "draining", action="drain", grace=self._grace)
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - the grace must end whatever the beginning did
            report_failure(error, "the drain began badly; its grace runs", action="drain")
        if self._over.wait(max(0.0, ends_at - time.monotonic())):
            return
        left = self._still_running()
        if not left:
            # Nothing of ours runs any more; the library is still closing its threads.
            return
        alert(
            Severity.ERROR,
            "the grace is over: running jobs are abandoned and will run again",
            action="grace_over",
            abandoned=left,
        )
        give_up(self._abandon)


def give_up(hand_back: Callable[[], None]) -> NoReturn:
    """End this process now; `hand_back` is its last statement, so that no abandoned thread
    goes on calling anybody after its row was given away."""
    flush_alerts()
    try:
        hand_back()
    except Exception as error:  # noqa: BLE001 - nothing may keep this process
        report_failure(error, "nothing was handed back; the leases end", action="hand_back")
    finally:
        os._exit(1)
