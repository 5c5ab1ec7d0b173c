"""Waiting for what becomes of kept events: one reader for all who wait in this process.

Each waiter with reads of its own would cost Postgres the more, the slower the grants are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Final

from vpay_tasks.errors import Severity, VpayError, describe
from vpay_tasks.store import inbox
from vpay_tasks.store.db import Database
from vpay_tasks.store.inbox import End
from vpay_tasks.telemetry import say

EVERY_S: Final = 0.05
"""Between two looks. Lower: more statements; higher: a quick verdict is told later."""


class Watch:
    """`with watch.waiting(row_id) as future:` – the future gets the row's End, if one comes.
    Its thread is made on first use, so after a fork, and reads only while somebody waits."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiters: dict[int, list[Future[End]]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._failing = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting(self, row_id: int) -> Iterator[Future[End]]:
        future: Future[End] = Future()
        with self._changed:
            self._waiters.setdefault(row_id, []).append(future)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="vpay-inbox", daemon=True)
                # Without room for it nobody looks: the event is kept, its answer PENDING.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
            self._changed.notify()
        try:
            yield future
        finally:
            with self._changed:
                left = [one for one in self._waiters.pop(row_id, []) if one is not future]
                if left:
                    self._waiters[row_id] = left

    def close(self) -> None:
        """Whoever still waits hears nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=1)

    def _run(self) -> None:
        while row_ids := self._next():
            try:
                with self._db.connection() as connection:
                    found = inbox.outcomes(connection, row_ids)
                self._failing = False
            except Exception as error:  # noqa: BLE001 - who waits is answered without a verdict
                if not self._failing or not isinstance(error, VpayError):
                    say(
                        Severity.WARN,
                        "verdicts could not be read; trying again",
                        action="inbox_watch",
                        error=describe(error),
                    )
                self._failing, found = True, {}
            self._tell(found)

    def _next(self) -> list[int]:
        """The rows that are waited for, a moment after the last look; empty: it is time to
        end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, timeout=EVERY_S)
            self._changed.wait_for(lambda: self._closed or self._waiters)
            return [] if self._closed else list(self._waiters)

    def _tell(self, found: dict[int, End]) -> None:
        with self._changed:
            for row_id, end in found.items():
                for future in self._waiters.get(row_id, []):
                    # A waiter that gave up has cancelled it.
                    if not future.done() and future.set_running_or_notify_cancel():
                        future.set_result(end)
