"""Sessions: what the processes of the simulated installation do, stepped one at a time.

A session is a thread that runs only while it has the baton. It gives it back before every
statement that it sends, before every call of a rail, and wherever the shipping code would
wait; the machine chooses who gets it next. So an interleaving is a list of choices, which
can be replayed and made smaller.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

from tests.model.clock import TICK_S, Clock

STUCK_S: Final = 60.0
"""Real seconds, for one step and for whatever else ends by itself: it waits for something that
nobody steps. Lower: a loaded machine is taken for a program without end."""

Fault = str
"""`before`: the connection is cut, and the next statement is never sent. `after`: it is cut
once the server has answered, so that the session never hears."""


class Killed(BaseException):
    """The process of this session is gone. Nothing it does from here reaches anybody."""


class Session:
    """One thread of one process."""

    def __init__(self, world: Sessions, process: Any, name: str, work: Callable[[], Any]) -> None:
        self.world = world
        self.process = process
        self.name = name
        self.at = "begin"
        self.ready: Callable[[], bool] = _always
        self.over = False
        self.killed = False
        self.error: BaseException | None = None
        self.answer: Any = None
        self.fault: Fault | None = None
        self.connection: Any = None
        """That of its statement."""
        self.says: Any = None
        """What the rail that it waits for will say."""
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Let it run to where it stops next."""
        self.world.clock.advance(TICK_S)
        self.world.statements += 1
        self._hand_over()

    def pause(self, at: str, ready: Callable[[], bool] | None = None) -> None:
        """From inside: give the baton back, until the machine wants this one to go on."""
        if self.killed:
            raise Killed
        self.at, self.ready = at, ready or _always
        self._back.release()
        self._go.acquire()
        if self.killed:
            raise Killed

    def kill(self) -> None:
        """Its process is gone: it unwinds without reaching anything."""
        if not self.over:
            self.killed = True
            self._hand_over()
        assert self.over, f"{self.name} goes on after its process was killed, at {self.at}"
        self._thread.join(STUCK_S)

    def _hand_over(self) -> None:
        self._go.release()
        if not self._back.acquire(timeout=STUCK_S):
            self.killed = True  # nobody would take the baton back: it unwinds by itself
            raise AssertionError(f"comes to rest: not {self.name}, which went on from {self.at}")

    def _run(self) -> None:
        self._go.acquire()
        _here.session = self
        try:
            if not self.killed:
                self.answer = self._work()
        except BaseException as error:  # noqa: BLE001 - the machine judges it
            self.error = error
        finally:
            self.over, self.at = True, "over"
            self._back.release()


_here = threading.local()


def current() -> Session | None:
    """The session that has the baton; None in the machine's own thread."""
    return getattr(_here, "session", None)


class Sessions:
    """Those of one example."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.all: list[Session] = []
        self.ended: list[Session] = []
        """By themselves, since the machine last looked."""
        self.seen: Counter[str] = Counter()
        """What really happened: a machine whose rare paths never happen proves nothing."""
        self.statements = 0

    def spawn(self, process: Any, name: str, work: Callable[[], Any]) -> Session:
        session = Session(self, process, name, work)
        self.all.append(session)
        return session

    def live(self) -> list[Session]:
        self.ended += [session for session in self.all if session.over and not session.killed]
        self.all = [session for session in self.all if not session.over]
        return self.all

    def ready(self) -> list[Session]:
        return [session for session in self.live() if session.ready()]

    def run(self, sessions: Callable[[], list[Session]], limit: int = 4_000) -> None:
        """Step those in turn until none of them can go on."""
        for _ in range(limit):
            now = sessions()
            if not now:
                return
            for session in now:
                if not session.over and session.ready():
                    session.step()
        raise AssertionError(f"comes to rest: not within {limit} rounds of {self.where()}")

    def where(self) -> str:
        """Who has not ended, and where each stands."""
        return "\n".join(
            f"{one.name}: at {one.at}"
            + (f", backend {one.connection.pid}" if one.connection is not None else "")
            for one in self.all
            if not one.over
        )


class Event:
    """threading.Event, as far as the runtime uses it."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return _wait("event", lambda: self._set, timeout)


class Condition:
    """threading.Condition. Whatever happens between two pauses happens at once: no lock."""

    def __init__(self) -> None:
        self._notified = 0

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *_: object) -> None: ...

    def notify(self) -> None:
        self._notified += 1

    def wait(self, timeout: float | None = None) -> bool:
        before = self._notified
        return _wait("condition", lambda: self._notified > before, timeout)


class Thread:
    """threading.Thread: another session of the same process."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self._target, self._name = target, name
        self._session: Session | None = None

    def start(self) -> None:
        self._session = owner().spawn(self._name, self._target)

    def is_alive(self) -> bool:
        return self._session is not None and not self._session.over

    def join(self, timeout: float | None = None) -> None:
        _wait("join", lambda: not self.is_alive(), timeout)


def _wait(what: str, condition: Callable[[], bool], timeout: float | None) -> bool:
    session = current()
    assert session is not None, "the machine's own thread waits for nobody"
    clock = session.world.clock
    until = None if timeout is None else clock.now + timeout
    while not condition():
        if until is not None and clock.now >= until:
            return False
        session.pause(what, lambda: condition() or (until is not None and clock.now >= until))
    return True


THREADING: Final = SimpleNamespace(
    Event=Event, Condition=Condition, Thread=Thread, Lock=threading.Lock
)
"""What stands in the runtime's modules for the library's own."""


class Time:
    """The `time` module of the runtime."""

    CLOCK_BOOTTIME = 7

    def __init__(self) -> None:
        self.clock: Clock | None = None

    def monotonic(self) -> float:
        assert self.clock is not None
        return self.clock.now

    def time(self) -> float:
        return self.monotonic()

    def clock_gettime(self, _which: int) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        _wait("sleep", lambda: False, seconds)


TIME: Final = Time()

_process = SimpleNamespace(value=None)


@contextlib.contextmanager
def inside(process: Any) -> Iterator[None]:
    """What is made in the block belongs to `process`."""
    before, _process.value = _process.value, process
    try:
        yield
    finally:
        _process.value = before


def owner() -> Any:
    """The process whose code runs now."""
    session = current()
    return session.process if session is not None else _process.value


def _always() -> bool:
    return True
