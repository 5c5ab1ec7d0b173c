"""One worker process: boots before its threads, watches while they run, drains at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
from typing import Any, Final, NoReturn

import dramatiq

from vpay_tasks.config import Settings
from vpay_tasks.core.task import Registry
from vpay_tasks.errors import Severity, VpayError, describe
from vpay_tasks.handlers.context import Context
from vpay_tasks.runtime.boot import wait_for_servers
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.drain import Drain, give_up
from vpay_tasks.runtime.pulse import Pulse
from vpay_tasks.runtime.run import Run, Running
from vpay_tasks.runtime.run_job import Runner
from vpay_tasks.runtime.settle import Settler
from vpay_tasks.runtime.watchdog import Watchdog
from vpay_tasks.store import db, jobs, workers
from vpay_tasks.telemetry import alert, flush_alerts, reset_after_fork, say

LOOK_S: Final = 0.05
"""Between looks whether the last job of a draining process has ended."""


class WorkerProcess(dramatiq.Middleware):
    """Wires the run side into Dramatiq's worker. Made at import, so it connects nothing."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        context: Context,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._context = context
        self._running = Running()
        self._broker: CarryingBroker | None = None
        self._runner: Runner | None = None
        self._url = settings.database_url
        self._id = f"w_{secrets.token_hex(8)}"
        self._pause = threading.Event()

    def run(self, number: int) -> None:
        """What every actor calls: run the held envelope `number`, if it is still held."""
        assert self._broker is not None
        assert self._runner is not None
        envelope = self._broker.held.take(number)
        if envelope is not None:
            self._runner.run_message(envelope)

    def before_worker_boot(self, broker: dramatiq.Broker, worker: Any) -> None:
        """Everything that must stand before the first message. Raises SystemExit: any other
        exception of a hook is swallowed, and the worker would run half-wired."""
        assert isinstance(broker, CarryingBroker)
        reset_after_fork()
        self._broker = broker
        self._worker = worker
        broker.threads = worker.worker_threads
        broker.served = set(worker.consumer_whitelist or broker.get_declared_queues())
        broker.give_back = lambda envelope: self._hand_back(envelope.claims)
        self._drain = Drain(
            grace=self._settings.worker.grace,
            begin=self._begin_drain,
            still_running=lambda: len(self._running.all()),
            abandon=self._abandon_all,
        )
        self._drain.install((signal.SIGTERM, signal.SIGHUP))
        try:
            wait_for_servers(self._url, broker, given_up=lambda: self._drain.signalled)
            self._boot(sorted(broker.served), worker.worker_threads)
        except Exception as error:  # noqa: BLE001 - see above
            code = error.exit if isinstance(error, VpayError) else 1
            alert(
                Severity.ERROR,
                "the worker can't boot",
                action="boot",
                error=describe(error),
                exit=code,
            )
            flush_alerts()
            sys.exit(code)

    def _boot(self, queues: list[str], threads: int) -> None:
        settler = Settler(self._url, self._registry, application=f"vpay worker {self._id}")
        self._settler = settler
        self._runner = Runner(
            worker=self._id,
            context=self._context,
            registry=self._registry,
            running=self._running,
            settler=settler,
            run_lease=self._settings.worker.run_lease,
            ladders=self._settings.ladders,
            windows=self._settings.windows,
        )
        me = workers.Worker(self._id, socket.gethostname(), os.getpid(), queues, threads)
        self._pulse = Pulse(
            self._url,
            me,
            self._running,
            run_lease=self._settings.worker.run_lease,
            session_lock=self._settings.database.pulse == "lock",
        )
        settler.start()
        self._pulse.start()
        say(
            Severity.INFO,
            "worker ready",
            action="boot",
            worker=self._id,
            queues=queues,
            threads=threads,
            kinds=self._registry.names(),
        )

    def after_worker_boot(self, broker: dramatiq.Broker, worker: Any) -> None:
        self._watchdog = Watchdog(
            self._running, dead_threads=self._dead_threads, give_up=self._give_up
        )
        self._watchdog.start()

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: Any) -> None:
        """Dramatiq has stopped its threads, or given up on them: its patience may be set
        shorter than our grace, which decides. So wait for what still runs; the grace ends
        this process if that takes too long."""
        while self._running.all():
            self._pause.wait(LOOK_S)
        self._release_held()  # what a pop brought after the signal
        self._watchdog.stop()
        self._settler.close()
        if self._runner is not None:
            self._runner.close()
        self._pulse.stop()
        self._context.db.close()
        self._drain.over()
        say(Severity.INFO, "worker ended", action="end", worker=self._id)
        flush_alerts()

    def _begin_drain(self) -> None:
        if self._broker is None or self._runner is None:
            return  # the signal came while this process was still waiting for its servers
        self._broker.draining.set()
        self._runner.draining = True
        self._pulse.tell_draining()
        self._release_held()

    def _release_held(self) -> None:
        assert self._broker is not None
        held = self._broker.held.take_all()
        claims = {id_: env.token for env in held for id_ in env.ids}
        if claims:
            self._hand_back(claims)

    def _abandon_all(self) -> None:
        self._abandon(self._running.all())

    def _abandon(self, runs: list[Run]) -> None:
        for run in runs:
            run.cancel()
        self._hand_back({run.id: run.lease for run in runs if not run.settling})

    def _give_up(self, stuck: list[Run]) -> NoReturn:
        """End the process; everybody but the stuck gets its lease back uncounted. The stuck
        row is reaped as a crash, since it is what took the process down."""
        others = [run for run in self._running.all() if run not in stuck]
        give_up(lambda: self._abandon(others))

    def _hand_back(self, claims: dict[int, Any]) -> None:
        """On a connection of its own: the pool may be what everything is stuck behind."""
        try:
            connection = db.connect(self._url, application="vpay hand-back", lock_timeout=2.0)
            with contextlib.closing(connection):
                jobs.release(connection, claims)
        except VpayError as error:
            say(
                Severity.ERROR,
                "nothing was handed back; the leases end by themselves",
                action="release",
                jobs=len(claims),
                error=describe(error),
            )

    def _dead_threads(self) -> list[str]:
        assert self._broker is not None
        if self._broker.draining.is_set():
            return []  # they are meant to end
        threads: list[threading.Thread] = [
            *self._worker.workers,
            *self._worker.consumers.values(),
        ]
        dead = [thread.name for thread in threads if not thread.is_alive()]
        dead += ["settle"] if not self._settler.is_alive() else []
        dead += ["pulse"] if not self._pulse.is_alive() else []
        return dead
