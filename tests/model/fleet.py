"""The simulated installation: processes over the shipping runtime, and a bag for a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from pydantic import SecretStr

from tests.model import tasks
from tests.model.connection import Server, Stepped, SteppedDatabase
from tests.model.outside import Rail, Receiver
from tests.model.sessions import Session, Sessions, inside
from tests.payment_kit import KEYS
from tests.webhooks.world import SECRET
from vpay_tasks.config import DatabaseTable, EndpointTable, MerchantTable, Settings
from vpay_tasks.core.task import REGISTRY, Task
from vpay_tasks.errors import Broker
from vpay_tasks.handlers.context import Context
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.dispatcher import Dispatcher
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.runtime.pulse import Pulse
from vpay_tasks.runtime.run import Running
from vpay_tasks.runtime.run_job import Runner
from vpay_tasks.runtime.settle import Settler
from vpay_tasks.runtime.timers import Reaper, Seeder
from vpay_tasks.store import db, workers
from vpay_tasks.webhooks.endpoints import Endpoints
from vpay_tasks.wiring import BUILT_IN

THREADS: Final = 4
"""Of one worker: with two of them a lane has room for one, and a window for ten messages."""

MERCHANT: Final = "m_1"

ENDPOINTS: Final = {"all": ["*"], "failed": ["payment_intent.payment_failed"]}

LEFT_OUT: Final = {
    "scan_live_charges",
    "scan_deliveries",
    "scan_inbox",
    "grant_inbox",
    "sweep_expired",
    "sweep_idle_customers",
    "sweep_retention",
}
"""Backstops would hide what the others lose, and of what is swept there is nothing here."""


class Bag(CarryingBroker):
    """Messages in no order, of which any may get lost, be copied, or come back."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Envelope] = []
        self.sent: list[Envelope] = []
        """All there ever were, for whoever kept them."""
        self.fails = False

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        reached = envelopes[: len(envelopes) // 2] if self.fails else envelopes
        self.messages += reached
        self.sent += reached
        if self.fails:
            raise Broker("the broker is out of reach")


class Process:
    """One process: its sessions and connections end with it."""

    def __init__(self, world: Any, name: str) -> None:
        self.world = world
        self.name = name
        self.connections: list[Stepped] = []
        self.sessions: list[Session] = []
        self.alive = True

    def spawn(self, name: str, work: Callable[[], Any]) -> Session:
        session: Session = self.world.sessions.spawn(self, f"{self.name}: {name}", work)
        self.sessions.append(session)
        return session

    def working(self, name: str) -> int:
        """How many sessions of this name have not ended."""
        self.sessions = [session for session in self.sessions if not session.over]
        return sum(session.name == f"{self.name}: {name}" for session in self.sessions)

    def kill(self) -> None:
        """kill -9: nothing that it was about to do happens any more."""
        self.alive = False
        waits = sum(one.at.startswith("lock of") for one in self.sessions if not one.over)
        self.world.sessions.seen["killed while it waited for a lock"] += waits
        with ExitStack() as stack:  # one that does not end keeps no other from ending
            for session in reversed(self.sessions):
                stack.callback(session.kill)
            for connection in reversed(self.connections):
                stack.callback(connection.cut)


class Application(Process):
    """What enqueues jobs and confirms payments."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.db = SteppedDatabase(world.server.url, keys=KEYS)


class DispatcherProcess(Process):
    """vpay-dispatch, with its timers' work as separate sessions."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        known = tasks.registry(world.built_in, newest=True)
        with inside(self):
            self.dispatcher = Dispatcher(world.settings, known, world.bag)
            self._reaper = Reaper(known)
            self._seeder = Seeder(known, also=lambda _: None)
            self._timer = db.connect(world.server.url, application="reap")

    def look(self) -> Session:
        return self.spawn("dispatch", self.dispatcher.look)

    def reap(self) -> Session:
        return self.spawn("reap", lambda: self._reaper(self._usable()))

    def seed(self) -> Session:
        return self.spawn("seed", lambda: self._seeder(self._usable()))

    def timing(self) -> int:
        return self.working("reap") + self.working("seed")

    def _usable(self) -> db.Connection:
        if not db.usable(self._timer):
            self._timer = db.connect(self.world.server.url, application="reap")
        return self._timer


class WorkerProcess(Process):
    """A worker: its threads are sessions, its settle thread one more."""

    def __init__(self, world: World, name: str, *, newest: bool) -> None:
        super().__init__(world, name)
        self.newest = newest
        url = world.server.url
        settings = world.settings
        known = tasks.registry(world.built_in, newest=newest)
        self.db = SteppedDatabase(url, keys=KEYS, application="vpay worker")
        self.context = Context(
            db=self.db,
            rails={world.rail.code: world.rail},
            endpoints=world.endpoints,
            ladders=settings.ladders,
            windows=settings.windows,
        )
        world.workers_made += 1
        self.id = f"w_{world.workers_made:04d}"
        running = Running()
        with inside(self):
            self._settler = Settler(url, known, application=f"vpay worker {self.id}")
            self.runner = Runner(
                worker=self.id,
                context=self.context,
                registry=known,
                running=running,
                settler=self._settler,
                run_lease=settings.worker.run_lease,
                ladders=settings.ladders,
                windows=settings.windows,
            )
            me = workers.Worker(self.id, "host", 1, list(settings.dispatch.queues), THREADS)
            self.pulse = Pulse(
                url, me, running, run_lease=settings.worker.run_lease, session_lock=True
            )
            self._settler.start()

    def beat(self) -> Session:
        return self.spawn("pulse", self.pulse._beat)

    def drain(self) -> None:
        self.runner.draining = True
        self.pulse._draining = True

    @property
    def locked(self) -> bool:
        connection = self.pulse._connection
        return self.pulse._holds_lock and connection is not None and not connection.closed

    def take(self, envelope: Envelope) -> Session:
        return self.spawn("message", lambda: self.runner.run_message(envelope))

    def has_room(self) -> bool:
        return self.alive and self.working("message") < THREADS


class World:
    """One installation, of one example."""

    def __init__(self, server: Server, sessions: Sessions, receiver: Receiver) -> None:
        self.server = server
        self.sessions = sessions
        self.rail = Rail()
        self.receiver = receiver
        self.bag = Bag()
        self.built_in: list[Task] = [
            one for one in REGISTRY if one.kind.built_in and one.kind.name not in LEFT_OUT
        ]
        assert BUILT_IN  # their modules have put them there
        endpoints = tuple(
            EndpointTable.model_validate(
                {"id": name, "url": receiver.url + name, "secrets": [SECRET], "types": types}
            )
            for name, types in ENDPOINTS.items()
        )
        self.settings = Settings.model_validate(
            {
                "database": DatabaseTable(url=SecretStr(server.url)),
                "dispatch": {"queues": ("payments", "webhooks", "housekeeping", "default")},
                "egress": {"allow_private_targets": True},
                "merchants": (MerchantTable(id=MERCHANT, endpoints=endpoints),),
            }
        )
        self.endpoints = Endpoints(self.settings)
        self.workers_made = 0
        self.applications = [Application(self, "app")]
        self.dispatchers = [DispatcherProcess(self, f"dispatcher {n}") for n in (1, 2)]
        self.workers = [WorkerProcess(self, f"worker {n}", newest=True) for n in (1, 2)]

    @property
    def processes(self) -> list[Process]:
        return [*self.applications, *self.dispatchers, *self.workers]

    def proves_its_life(self, worker_id: str) -> bool:
        """Whether that worker's session lock stands: then nobody may take it for dead."""
        return any(worker.id == worker_id and worker.locked for worker in self.workers)

    def replace(self, old: Process, *, newest: bool = True) -> None:
        """A supervisor starts it anew."""
        match old:
            case Application():
                self.applications[self.applications.index(old)] = Application(self, old.name)
            case DispatcherProcess():
                place = self.dispatchers.index(old)
                self.dispatchers[place] = DispatcherProcess(self, old.name)
            case WorkerProcess():
                place = self.workers.index(old)
                self.workers[place] = WorkerProcess(self, old.name, newest=newest)

    def close(self) -> None:
        with ExitStack() as stack:
            for process in reversed(self.processes):
                stack.callback(process.kill)
        assert not self.sessions.live(), f"left behind: {self.sessions.where()}"
