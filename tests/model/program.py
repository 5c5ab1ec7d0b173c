"""What a program of rules stands on: the installation, who goes on in it, what must hold."""

from __future__ import annotations

import functools
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.model import tasks
from tests.model.audit import Audit
from tests.model.connection import Server
from tests.model.fleet import THREADS, Application, Process, World
from tests.model.outside import Receiver
from tests.model.rest import come_to_rest
from tests.model.sessions import TIME, Session, Sessions
from tests.model.stage import stage, watched
from tests.payment_kit import APPROVED
from vpay_tasks import errors, telemetry
from vpay_tasks.core.walk import FRONT
from vpay_tasks.payments import callbacks, checkout, confirm
from vpay_tasks.rails.port import ByReference
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.store import sessions

EXPECTED: Final = (errors.Storage, errors.Conflict, errors.Broker)
"""What an operation may be told. Whatever else it raises is a bug."""

IDLE: Final = ("condition", "event")
"""Where a session stops that has nothing to do."""

ALL: Final = 100
"""Steps: more than an operation has."""


def move(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule; how often it was drawn is counted, and not what it sets off."""

    def declare(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def counted(self: Program, *values: Any, **named: Any) -> None:
            if self.drawing:
                self.record["steps"] += 1
                self.record[f"rule: {function.__name__}"] += 1
            before, self.drawing = self.drawing, False
            try:
                with self.telling():
                    function(self, *values, **named)
            finally:
                self.drawing = before

        declared: Any = rule(**strategies)
        return declared(counted)

    return declare


class Program(RuleBasedStateMachine):
    """One program's. `server` and `receiver` are shared by all; `record` counts what really
    happened, over all of them."""

    server: Server
    receiver: Receiver
    record: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.drawing = False
        self.intents: list[str] = []
        self.broken = False
        try:
            self._begin()
        except BaseException:
            self.stack.close()
            raise

    def _begin(self) -> None:
        self.clock = self.stack.enter_context(stage(self.server))
        self.receiver.posts.clear()
        self.receiver.mood = 200
        tasks.JOURNAL.forget()
        self.sessions = Sessions(self.clock)
        self.world = World(self.server, self.sessions, self.receiver)
        self.stack.callback(self.world.close)
        self.audit = Audit(self.world)
        self.stack.enter_context(watched(self.audit))
        self.before = Counter(telemetry.counts())

    # ----- who goes on

    def begin(self, session: Session, steps: int) -> None:
        for _ in range(steps):
            if session.over or not session.ready():
                break
            session.step()

    def carry_on(self) -> None:
        """Everybody does what there is to do now, and nothing goes wrong."""
        self.everybody_pulses()
        for process in self.world.dispatchers:
            if not process.working("dispatch"):
                process.look()
        self.sessions.run(self.sessions.ready)
        for worker in self.world.workers:
            while self.world.bag.messages and worker.has_room():
                worker.take(self.world.bag.messages.pop(0))
        self.sessions.run(self.sessions.ready)

    # ----- what befalls them

    def offered(self) -> list[Envelope]:
        """The broker's messages; if there are none, of what a dispatcher finds now."""
        bag = self.world.bag.messages
        process = self.world.dispatchers[0]
        if not bag and not process.working("dispatch"):
            self.everybody_pulses()
            self.begin(process.look(), ALL)
        return bag

    def take_some(self, steps: int) -> list[Session]:
        """Whoever has room takes a message and goes so far; all that can go on then."""
        bag = self.offered()
        for each in range(min(len(bag), THREADS)):
            worker = self.world.workers[each % 2]
            if worker.has_room():
                self.begin(worker.take(bag.pop(0)), steps)
        return self.sessions.ready()

    def everybody_pulses(self) -> None:
        for worker in self.world.workers:
            if not worker.working("pulse"):
                worker.beat()
        self.sessions.run(lambda: [one for one in self.sessions.ready() if "pulse" in one.name])

    def busy(self) -> list[Process]:
        return [
            process
            for process in self.world.processes
            if any(not one.over and one.at not in IDLE for one in process.sessions)
        ]

    # ----- what an application asks for

    @property
    def app(self) -> Application:
        return self.world.applications[0]

    def confirmed(self, app: Application, intent_id: str) -> None:
        confirm(app.db, intent_id, rail=self.world.rail, payer=APPROVED, clock=TIME.monotonic)

    def called_back(self, app: Application, which: int) -> None:
        references = list(self.world.rail.orders) or [str(uuid.uuid4())]
        named = ByReference(references[which % len(references)])
        callbacks.take(app.db, self.world.rail.code, named, within=5.0)

    def close_pages(self, app: Application) -> None:
        with app.db.connection() as connection:
            due = sessions.page_due(connection, FRONT, page=10)
        for one in due:
            checkout.expire_due(app.db, one)

    # ----- what must hold

    @invariant()
    def holds(self) -> None:
        with self.telling():
            self.sessions.live()
            for session in self.sessions.ended:
                if session.error is not None and not isinstance(session.error, EXPECTED):
                    raise AssertionError(f"{session.name}: {session.error!r}") from session.error
            self.sessions.ended.clear()
            self.audit.look()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What goes wrong in the block says where everybody stood. Nothing is healed then."""
        try:
            yield
        except BaseException as error:
            if not self.broken:
                error.add_note(f"Who had not ended:\n{self.sessions.where()}")
            self.broken = True
            raise

    def teardown(self) -> None:
        self.drawing = False
        try:
            if not self.broken:
                with self.telling():
                    come_to_rest(self)
        finally:
            self.record["statements"] += self.sessions.statements
            self.record["programs"] += 1
            self.record.update(self.sessions.seen)
            after = Counter(telemetry.counts())
            self.record.update({name: after[name] - self.before[name] for name in after})
            self.stack.close()
