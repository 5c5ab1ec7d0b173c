"""Hints after a commit: look at these jobs now. Polling is the truth; a lost hint costs
milliseconds."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from vpay_tasks.errors import Severity, Storage, describe
from vpay_tasks.store import jobs
from vpay_tasks.store.db import Connection, connect, usable
from vpay_tasks.telemetry import say

INTERVAL_S: Final = 0.010
"""One NOTIFY per 10 ms and process: commits of notifying transactions are serialised
database-wide, so a hint with every commit would slow every commit down."""


LOCK_TIMEOUT_S: Final = 0.5
"""Somebody holds the row of one hint: it is lost, and the others are not late."""


class Hinter:
    """Pulls the named jobs forward and wakes the dispatchers, coalesced, behind the
    caller's back. Its thread and connection are made on first use, so after a fork."""

    def __init__(self, url: str, *, application: str = "vpay") -> None:
        self._url = url
        self._application = f"{application} hints"
        self._wanted: set[str] = set()
        self._wake = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, keys: set[str]) -> None:
        """Never raises: what it is about has been committed."""
        with self._wake:
            self._wanted |= keys
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, args=(self._closing,), name="vpay-hints", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:  # the machine has no room for one more thread
                    say(Severity.WARN, "hints were lost", action="hint", error=describe(error))
                    self._wanted.clear()
                    return
                self._thread = thread
            self._wake.notify()

    def close(self) -> None:
        """Send what is left, then end; at most a second, since it is only a hint."""
        with self._wake:
            thread, self._thread = self._thread, None
            closing, self._closing = self._closing, threading.Event()
            closing.set()
            self._wake.notify_all()
        if thread is not None:
            thread.join(timeout=1)

    def _run(self, closing: threading.Event) -> None:
        connection: Connection | None = None
        while keys := self._next(closing):
            try:
                if not usable(connection):
                    connection = connect(
                        self._url, application=self._application, lock_timeout=LOCK_TIMEOUT_S
                    )
                send(connection, keys)
            except Exception as error:  # noqa: BLE001 - a hint is lost without harm, a thread is not
                say(Severity.WARN, "hints were lost", action="hint", error=describe(error))
            closing.wait(INTERVAL_S)
        if connection is not None:
            connection.close()

    def _next(self, closing: threading.Event) -> set[str]:
        with self._wake:
            while not self._wanted and not closing.is_set():
                self._wake.wait()
            keys, self._wanted = self._wanted, set()
            return keys


def send(connection: Connection, keys: set[str]) -> None:
    """Pull the jobs of `keys` forward one by one (each its own commit: no lock is held from
    one to the next), then notify. The key "" stands for no job: it only wakes."""
    for key in sorted(keys - {""}):
        with suppress(Storage):  # somebody holds this row: its poll finds it
            jobs.pull_forward(connection, key)
    jobs.wake(connection)
