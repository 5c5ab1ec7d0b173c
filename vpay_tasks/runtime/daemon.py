"""The dispatcher as a process: boots, starts the timers, loops, ends in good order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from vpay_tasks.config import Settings
from vpay_tasks.core.task import Registry
from vpay_tasks.errors import Severity
from vpay_tasks.runtime.boot import wait_for_servers
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.dispatcher import Dispatcher
from vpay_tasks.runtime.drain import TWICE_S
from vpay_tasks.runtime.metrics import Metrics
from vpay_tasks.runtime.timers import Listener, Reaper, Seeder, Timer
from vpay_tasks.store.db import Connection, Database
from vpay_tasks.telemetry import flush_alerts, say


class Daemon:
    """`run()` returns the exit code: 0 after SIGTERM or SIGINT."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        broker: CarryingBroker,
        *,
        database: Database,
        also: Callable[[Connection], None],
    ) -> None:
        url = settings.database_url
        self._settings = settings
        self._broker = broker
        self._database = database
        self._dispatcher = Dispatcher(settings, registry, broker)
        self._timers = [
            Timer("reap", url, Reaper(registry)),
            Timer("seed", url, Seeder(registry, also=also)),
        ]
        if settings.database.pulse == "lock":  # a transaction pooler can't listen
            self._timers.append(Timer("listen", url, Listener(self._dispatcher.wake), listens=True))
        self._signalled_at: float | None = None

    def run(self) -> int:
        """Dispatch until a signal. Raises Storage or Broker when a server stays away at
        boot; later outages are waited out."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        url = self._settings.database_url
        wait_for_servers(url, self._broker, given_up=self._stopped)
        metrics = Metrics(self._database)
        port = self._settings.dispatch.metrics_port
        served = metrics.start(port) if port is not None else None
        for timer in self._timers:
            timer.start()
        say(
            Severity.INFO,
            "dispatcher ready",
            action="boot",
            dispatcher=self._dispatcher.id,
            queues=list(self._settings.dispatch.queues),
            metrics_port=served,
        )
        self._dispatcher.run()
        for timer in self._timers:
            timer.stop()
        metrics.stop()
        self._database.close()
        self._broker.close()
        say(Severity.INFO, "dispatcher ended", action="end", dispatcher=self._dispatcher.id)
        flush_alerts()
        return 0

    def _stopped(self) -> bool:
        return self._signalled_at is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._signalled_at is not None and now - self._signalled_at >= TWICE_S:
            os._exit(1)  # asked twice: what was claimed comes back with its lease
        self._signalled_at = self._signalled_at or now
        self._dispatcher.stop()
