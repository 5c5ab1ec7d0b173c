"""Where a process can be caught, from outside: in Postgres, at the rail, at a receiver, at the
broker. A place is armed before somebody comes to it; `reached` proves who stands there.
"""

from __future__ import annotations

import enum
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from tests.e2e.postgres_proxy import Line
from tests.e2e.proxy import Proxy
from tests.kills.gates import Gate, Write
from tests.kills.plays import Payment, Play
from tests.kills.world import Member, World
from vpay_sandbox.desk import Desk, Seen
from vpay_sandbox.httpd import Hangup, Reply

REFUSALS: Final = ("53100", "40P01", "57014", "55P03")
"""A full disk, a deadlock, a cancelled statement, a lock that was waited for too long."""


class Fault(enum.Enum):
    """SIGKILL; SIGSTOP until others have gone on, then SIGCONT; the connection ended before the
    server knows of a commit or before its answer is heard; an error of the server."""

    KILL = "killed"
    STOP = "stopped"
    CUT = "cut"
    ERROR = "refused"


class Moment(enum.Enum):
    """How far a write has come: inside its statement, inside the COMMIT, or the server has
    committed and its client has not heard so."""

    WRITTEN = "written"
    COMMITTING = "committing"
    COMMITTED = "committed"


@dataclass
class Caught:
    """Somebody at a place."""

    member: Member
    backend: int | None = None
    line: Line | None = None


class Place(ABC):
    """Used once: for one fault in one play. What stands between is asserted by the driver."""

    late = False
    """Whether what waits here goes on only with the process that is stopped behind it."""

    def __init__(self, world: World, play: Play, fault: Fault) -> None:
        self.world = world
        self.play = play
        self.fault = fault
        self.caught: Caught | None = None

    @abstractmethod
    def reached(self) -> Caught | None:
        """Who stands there by now. For an error: who was refused."""

    @abstractmethod
    def still(self) -> bool:
        """Whether they still do."""

    @abstractmethod
    def cut(self) -> None:
        """End the connection on which they wait, unheard."""

    @abstractmethod
    def bury(self) -> None:
        """Their process is dead: wait until the other side knows."""

    @abstractmethod
    def go(self) -> None:
        """Let go what waits here, if it lives, and whoever comes later."""


class InPostgres(Place):
    """At a write of a row of `kind`."""

    def __init__(
        self, world: World, play: Play, fault: Fault, kind: str, word: str, moment: Moment
    ) -> None:
        super().__init__(world, play, fault)
        self.moment = moment
        # Behind its deferred gate nothing comes but the end of the transaction.
        write = Write(kind, word, in_commit=moment is not Moment.WRITTEN)
        raises = ""
        if fault is Fault.ERROR:
            raises = REFUSALS[zlib.crc32(f"{kind} {word} {moment}".encode()) % len(REFUSALS)]
        self._gate = Gate(world.keeper, write, play.subject(kind), raises)

    def reached(self) -> Caught | None:
        if self.fault is Fault.ERROR:
            return Caught(self.world.members[0]) if self._gate.refused() else None
        backend = self._gate.waiting()
        if backend is None:
            return None
        self._gate.forget()
        member, line = self.world.line(backend)
        if self.moment is Moment.COMMITTED:
            line.hold_answers()
            self._gate.open()
            self.world.until(line.answered.is_set)
            assert line.committed, "its answer says that nothing was committed"
        self.caught = Caught(member, backend, line)
        return self.caught

    @property
    def _line(self) -> Line:
        assert self.caught is not None
        assert self.caught.line is not None
        return self.caught.line

    def still(self) -> bool:
        assert self.caught is not None
        if self.moment is Moment.COMMITTED:
            return not self._line.ended.is_set()
        return self._gate.waiting() == self.caught.backend

    def cut(self) -> None:
        if self.moment is Moment.WRITTEN and self._line.in_transaction:
            self._line.cut_at_commit()
            self._gate.open()
            self.world.until(self._line.commit_kept_back.is_set)
        else:
            self._line.cut()
        self.bury()

    def bury(self) -> None:
        # Before it is let go: a backend that waits at a gate would commit for nobody.
        assert self.caught is not None
        backend = self.caught.backend
        assert backend is not None
        self.world.until(lambda: not self.world.is_there(backend))

    def go(self) -> None:
        self._gate.open()
        if self.caught is not None:
            self._line.release()


class OverHttp(Place):
    """At a stub that has a request. `has_it`: the stub has done what it is asked for."""

    path: str

    def __init__(
        self, world: World, play: Play, fault: Fault, desk: Desk, *, has_it: bool = True
    ) -> None:
        super().__init__(world, play, fault)
        self._desk = desk
        if fault is Fault.ERROR:
            desk.script(self.path, Reply(503), after=has_it)
        elif fault is Fault.CUT or not has_it:
            desk.script(self.path, Hangup(), after=has_it)
        self._hold = desk.hold(self.path, times=1)
        self._before = len(desk.requests(self.path))

    @abstractmethod
    def who(self) -> Member:
        """Who sent the request that is held."""

    def reached(self) -> Caught | None:
        if self._hold.reached:
            self.caught = Caught(self.who())
        return self.caught

    @property
    def _request(self) -> Seen:
        return self._desk.requests(self.path)[self._before]

    def still(self) -> bool:
        return not self._request.done

    def cut(self) -> None:
        self._hold.release()

    def bury(self) -> None:
        self.world.until(lambda: self._request.done)

    def go(self) -> None:
        self._hold.release()


class Submission(OverHttp):
    """An application's, at the rail."""

    path = "*/requesttopay"

    def __init__(self, world: World, play: Play, fault: Fault, *, has_it: bool) -> None:
        super().__init__(world, play, fault, world.rail, has_it=has_it)

    def who(self) -> Member:
        assert isinstance(self.play, Payment)
        assert self.play.customer is not None
        return self.play.customer


class Question(OverHttp):
    """A poll's, at the rail."""

    path = "*/requesttopay/*"

    def __init__(self, world: World, play: Play, fault: Fault) -> None:
        super().__init__(world, play, fault, world.rail)

    def who(self) -> Member:
        return self.world.runner("poll_charge", self.play.about)


class Post(OverHttp):
    """A delivery's, at the receiver."""

    path = "/hooks/*/main"

    def __init__(self, world: World, play: Play, fault: Fault) -> None:
        super().__init__(world, play, fault, world.receiver)

    def who(self) -> Member:
        return self.world.runner("deliver_webhook", self.play.about, endpoint="main")


class HalfOfAPost(Place):
    """Of a delivery, on its way to the receiver, which has the first bytes of it."""

    FIRST: Final = 100

    def __init__(self, world: World, play: Play, fault: Fault) -> None:
        super().__init__(world, play, fault)
        self._before = len(world.receiver.requests("*"))
        world.hook.halve(self.FIRST)

    def reached(self) -> Caught | None:
        if self.world.hook.half_sent.is_set():
            self.caught = Caught(self.world.runner("deliver_webhook", self.play.about))
        return self.caught

    def still(self) -> bool:
        return self.world.hook.half_sent.is_set()

    def cut(self) -> None:
        self.world.hook.go(lost=True)

    def bury(self) -> None:
        self.world.hook.go(lost=True)

    def go(self) -> None:
        if self.fault is Fault.STOP:
            self.world.hook.go()


class Push(Place):
    """A dispatcher's, on its way to the broker: claimed, committed, not published. `arrives`:
    the broker has it, and its answer is on its way back."""

    late = True

    def __init__(self, world: World, play: Play, fault: Fault, *, arrives: bool = False) -> None:
        super().__init__(world, play, fault)
        self._arrives = arrives
        write = Write("poll_charge", "claim")
        self._gate = Gate(world.keeper, write, play.subject(write.kind))
        self._broker: Proxy | None = None

    def reached(self) -> Caught | None:
        if self._broker is None:
            backend = self._gate.waiting()
            if backend is None:
                return None
            member, _ = self.world.line(backend)
            self.caught = Caught(member)
            self._broker = member.broker
            assert self._broker is not None
            self._broker.kept_back.clear()
            self._broker.hold()
            self._gate.open()
        return self.caught if self._broker.kept_back.is_set() else None

    def still(self) -> bool:
        return bool(
            self.world.ask(
                "SELECT 1 FROM vpay.jobs WHERE kind = 'poll_charge' AND lease IS NOT NULL"
                " AND started_at IS NULL AND kills.about(kind, to_jsonb(jobs)) = %s",
                self.play.about,
            )
        )

    def cut(self) -> None:
        assert self._broker is not None
        if self._arrives:
            self._broker.cut_on_answer()
        else:
            self._broker.cut()
        self._broker.release()

    def bury(self) -> None:
        assert self._broker is not None
        self._broker.cut()

    def go(self) -> None:
        assert self._broker is not None
        self._broker.release()
