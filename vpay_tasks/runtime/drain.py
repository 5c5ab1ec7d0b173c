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

CLOSING_S: Final = 10.0
"""Behind the grace, for closing when nothing runs any more: the library's threads, the goodbye.
Lower: a slow but orderly end is called a bad one; higher: a database that hangs keeps us here."""

HAND_BACK_S: Final = 5.0
"""For giving rows back as the last act. Lower: a busy database keeps rows for their lease;
higher: one that hangs keeps a process that was told to end."""

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
        # it holds what the start of a thread needs. Two: what hangs at the beginning, a COMMIT
        # without its standby say, must not hold the grace up.
        threading.Thread(target=self._drain, name="vpay-drain", daemon=True).start()
        threading.Thread(target=self._keep_grace, name="vpay-grace", daemon=True).start()
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
        say(Severity.INFO, "draining", action="drain", grace=self._grace)
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - the grace must end whatever the beginning did
            report_failure(error, "the drain began badly; its grace runs", action="drain")

    def _keep_grace(self) -> None:
        self._signalled.wait()
        if self._over.wait(self._grace):
            return
        left = self._still_running()
        if not left and self._over.wait(CLOSING_S):
            return  # nothing of ours ran any more; the library was still closing its threads
        alert(
            Severity.ERROR,
            "the grace is over: what still runs or waits is abandoned and will run again",
            action="grace_over",
            abandoned=left,
        )
        give_up(self._abandon)


def give_up(hand_back: Callable[[], None]) -> NoReturn:
    """End this process now; `hand_back` is its last statement, so that no abandoned thread
    goes on calling anybody after its row was given away."""
    flush_alerts()

    def act() -> None:
        try:
            hand_back()
        except Exception as error:  # noqa: BLE001 - nothing may keep this process
            report_failure(error, "nothing was handed back; the leases end", action="hand_back")

    last = threading.Thread(target=act, name="vpay-hand-back", daemon=True)
    try:
        last.start()
        last.join(HAND_BACK_S)
    finally:  # also where the machine has no room for one more thread
        os._exit(1)
