"""What stands before a stub's own behaviour: who came, whose answer waits, what is scripted.

The same three things are reachable in this process (methods, any thread) and over HTTP below
`/__control__/` (control.py), because fault tests run the stubs as processes.
"""

from __future__ import annotations

import asyncio
import fnmatch
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from vpay_sandbox.httpd import Answer, Reply, Request
from vpay_sandbox.process import SandboxError

# So many requests are remembered with their bodies: above any test, below what a long benchmark
# would fill the memory with. The journal has all of them.
REMEMBERED = 100_000

# Which requests: a shell pattern over the path (`*/requesttopay/*`), or a predicate.
Match = str | Callable[[Request], bool]


def matches(match: Match, request: Request) -> bool:
    if isinstance(match, str):
        return fnmatch.fnmatchcase(request.path, match)
    return match(request)


class Service(Protocol):
    """A stub's own behaviour. `arrived` and `answered` write the journal."""

    def arrived(self, request: Request) -> None: ...

    async def answer(self, request: Request) -> Answer: ...

    def answered(self, request: Request, status: int | None) -> None:
        """`status` None: no answer went out (silence, hang-up, or the client was gone)."""

    def command(self, verb: str, wish: dict[str, Any]) -> dict[str, Any] | None:
        """A control verb of this stub's own; None when it has no such verb."""

    def close(self) -> None: ...


@dataclass(slots=True)
class Seen:
    """A request that arrived. `done` once answered or given up; then `status`, None for neither."""

    request: Request
    done: bool = False
    status: int | None = None


@dataclass(slots=True, eq=False)
class Script:
    """The next `left` matching requests get `answer` (None left: all of them); `met`: so many did.

    With `after`, the stub does its own work first (the rail has it, the receiver journals) and
    only its answer is replaced.
    """

    id: int
    match: Match
    answer: Answer
    left: int | None = 1
    after: bool = False
    met: int = 0


@dataclass(eq=False)
class Hold:
    """Keeps answers back from the moment they are decided until `release()`."""

    desk: Desk
    id: int
    match: Match
    left: int | None = None
    reached: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def wait(self, count: int = 1, *, timeout_s: float = 10.0) -> None:
        """Until `count` answers have been caught here; SandboxError after `timeout_s`."""
        self.desk.wait_for(
            lambda: self.reached >= count, f"{count} held requests", timeout_s=timeout_s
        )

    def release(self) -> None:
        self.desk.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Desk:
    """The HTTP app of a stub."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._changed = threading.Condition()
        self._seen: deque[Seen] = deque(maxlen=REMEMBERED)
        self._holds: list[Hold] = []
        self._scripts: list[Script] = []
        self._ids = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watchers: set[asyncio.Event] = set()

    async def __call__(self, request: Request) -> Answer:
        seen = Seen(request)
        self._loop = asyncio.get_running_loop()
        self.service.arrived(request)
        with self._changed:
            self._seen.append(seen)
        self._tell()
        status: int | None = None
        try:
            answer = await self._decide(request)
            await self._pass_holds(request)
            status = answer.status if isinstance(answer, Reply) else None
            return answer
        finally:  # also when the client went away while it was held
            seen.status, seen.done = status, True
            self.service.answered(request, status)
            self._tell()

    async def _decide(self, request: Request) -> Answer:
        script = self._take_script(request)
        if script is None:
            return await self.service.answer(request)
        if script.after:
            await self.service.answer(request)
        return script.answer

    def _take_script(self, request: Request) -> Script | None:
        with self._changed:
            for script in self._scripts:
                if matches(script.match, request):
                    script.met += 1
                    if script.left is not None:
                        script.left -= 1
                        if script.left <= 0:
                            self._scripts.remove(script)
                    return script
        return None

    async def _pass_holds(self, request: Request) -> None:
        while (hold := self._take_hold(request)) is not None:
            self._tell()
            await hold.gate.wait()

    def _take_hold(self, request: Request) -> Hold | None:
        with self._changed:
            for hold in self._holds:
                full = hold.left is not None and hold.reached >= hold.left
                if not full and matches(hold.match, request):
                    hold.reached += 1
                    return hold
        return None

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for watcher in self._watchers:
            watcher.set()

    # From any thread.

    def hold(self, match: Match = "*", *, times: int | None = None) -> Hold:
        """Catches the answers to matching requests, the first `times` of them or all."""
        with self._changed:
            self._ids += 1
            hold = Hold(self, self._ids, match, times)
            self._holds.append(hold)
            return hold

    def holds(self) -> list[Hold]:
        with self._changed:
            return list(self._holds)

    def release(self, hold: Hold | None = None) -> int:
        """Lets the answers of one hold go, or of all; they catch no more. Returns how many."""
        with self._changed:
            going = [one for one in self._holds if hold is None or one is hold]
            self._holds = [one for one in self._holds if one not in going]
        for one in going:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(one.gate.set)
        return len(going)

    def script(
        self, match: Match, answer: Answer, *, times: int | None = 1, after: bool = False
    ) -> Script:
        """The next `times` matching requests (None: all) are answered so; first script first."""
        with self._changed:
            self._ids += 1
            script = Script(self._ids, match, answer, times, after)
            self._scripts.append(script)
            return script

    def forget_scripts(self, id_: int | None = None) -> int:
        """All, or that one; how many requests they have met, of those that were not through."""
        with self._changed:
            going = [one for one in self._scripts if id_ in (None, one.id)]
            self._scripts = [one for one in self._scripts if one not in going]
        return sum(one.met for one in going)

    def requests(self, match: Match = "*") -> list[Seen]:
        """What arrived so far, in order; control requests are not counted."""
        with self._changed:
            return [seen for seen in self._seen if matches(match, seen.request)]

    def wait_requests(
        self, match: Match = "*", count: int = 1, *, done: bool = False, timeout_s: float = 10.0
    ) -> list[Seen]:
        """Until `count` matching requests have arrived (`done`: and been answered)."""

        def there() -> list[Seen]:
            return [seen for seen in self.requests(match) if seen.done or not done]

        self.wait_for(lambda: len(there()) >= count, f"{count} requests", timeout_s=timeout_s)
        return there()

    def wait_for(self, condition: Callable[[], bool], what: str, *, timeout_s: float) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise SandboxError(f"gave up after {timeout_s:g} s waiting for {what}")

    async def change(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """The same for a coroutine of the stub's own loop; False when the time is over."""
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    watcher.clear()
                    await watcher.wait()
        except TimeoutError:
            return False
        finally:
            self._watchers.discard(watcher)
        return True
