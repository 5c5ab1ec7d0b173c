"""What every route shares: settings, database, rails, inbox, and threads for work that blocks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from vpay_tasks.config import Settings
from vpay_tasks.errors import Severity, Storage
from vpay_tasks.inbox.receive import Inbox
from vpay_tasks.rails.port import RailPort
from vpay_tasks.store.db import Database
from vpay_tasks.telemetry import report_failure, say
from vpay_tasks.web.metrics import Seen

T = TypeVar("T")

QUIET_S: Final = 60.0
"""Between two alerts about the database. Lower: half an outage is an alert for every other
request; higher: a second one is told late."""


@dataclass
class Desk:
    """One per process. `database` has a connection for each of the threads."""

    settings: Settings
    database: Database
    rails: dict[str, RailPort]
    inbox: Inbox
    seen: Seen

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.settings.web.threads)
        self._told = False
        self._quiet_until = 0.0

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, from a thread of its own. Raises Storage if there is
        no free thread, or no end to it, within `web.patience` seconds in all.

        The loop never waits for Postgres: a stuck one costs `web.threads` threads, and each
        request its patience. Work that was given up on goes on in its thread and keeps its
        place until it ends: it may still commit, so it must be safe to do twice.
        """
        patience = self.settings.web.patience
        try:
            async with asyncio.timeout(patience) as waiting:
                await self._room.acquire()
                result = await asyncio.wrap_future(self._started(work))
        except TimeoutError:
            if not waiting.expired():
                raise
            error = Storage(f"the database did not answer within {patience:g} s")
            self._is_down(error)
            raise error from None
        except Storage as error:
            self._is_down(error)
            raise
        self._is_up()
        return result

    def _started(self, work: Callable[[], T]) -> Future[T]:
        loop = asyncio.get_running_loop()
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - whoever waits raises it
                future.set_exception(error)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._room.release)

        # A daemon, not a pool's thread: one that is stuck must not keep the process from ending.
        thread = threading.Thread(target=run, name="vpay-web", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no room for one more
            self._room.release()
            raise Storage("no thread to ask the database in") from error
        return future

    def _is_down(self, error: Storage) -> None:
        """An outage is one alert, not one for each request; and so is one in which some requests
        get their answer: a standby's reads, all but those of one row that somebody holds."""
        now = time.monotonic()
        if not self._told and now >= self._quiet_until:
            self._told, self._quiet_until = True, now + QUIET_S
            report_failure(error, "the database does not answer", action="web_storage")

    def _is_up(self) -> None:
        if self._told:
            self._told = False
            say(Severity.INFO, "the database answers again", action="web_storage")
