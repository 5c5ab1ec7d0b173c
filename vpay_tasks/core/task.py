"""`@task`: the one way to declare a kind of job, for the built-in ones and the user's."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from vpay_tasks.core.job import Answer
from vpay_tasks.core.ladders import DEFAULT, Ladder
from vpay_tasks.errors import Configuration, InvalidRequest

Handler = Callable[..., Answer | None]

QUEUE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,63}")

BATCH_MAX = 100
"""Jobs in one message. 100 ids of 19 digits fill half of the 4 KiB a message may have; a
larger batch also means more rows that one dead process sets back."""


FITTING_MAX = 64
"""Shapes of payload remembered for one task: a handler with **kwargs may see any number."""


@dataclass(frozen=True)
class Kind:
    """What the machinery must know of a job without running it."""

    name: str
    queue: str = "default"
    ladder: Ladder = DEFAULT
    max_attempts: int = 25
    batch: int = 1
    budget: float = 60.0
    lane: str | None = None
    priority: int = 2
    protected: bool = False
    """Never parked by a crash, a bug or a misconfiguration: hourly, and a page (spec 1)."""
    built_in: bool = False
    singleton: str | None = None
    """The dedupe key of a kind of which there is one row for ever, seeded by dispatchers."""
    every: float | None = None
    """Seconds from one run of a singleton to the next."""

    def __post_init__(self) -> None:
        faults = []
        if not (1 <= len(self.name) <= 64 and self.name.isprintable()):
            faults.append("name: 1 to 64 printable characters")
        if not QUEUE_NAME.fullmatch(self.queue):
            faults.append("queue: a letter, then letters, digits, . _ -, 64 at most")
        if not 1 <= self.batch <= BATCH_MAX:
            faults.append(f"batch: 1 to {BATCH_MAX}")
        if not 0 <= self.priority <= 3:
            faults.append("priority: 0 (first) to 3")
        if not 0 < self.budget <= 86_400:
            faults.append("budget: up to 86,400 seconds")
        if self.max_attempts < 1:
            faults.append("max_attempts: at least 1")
        if faults:
            raise Configuration(f"task {self.name!r}: " + "; ".join(faults))


@dataclass(frozen=True)
class Task:
    """A declared kind and the function that runs it. Calling it calls the function."""

    kind: Kind
    handler: Handler
    signature: inspect.Signature = field(repr=False, compare=False)
    _fitting: set[tuple[str, ...]] = field(default_factory=set, repr=False, compare=False)
    """Keys that were found to fit: whether they do depends on nothing else, and asking the
    signature costs more than many a handler does."""

    def __call__(self, *args: Any, **kwargs: Any) -> Answer | None:
        return self.handler(*args, **kwargs)

    def fits(self, payload: dict[str, Any]) -> None:
        """Raise InvalidRequest when the handler doesn't take this payload's keys."""
        keys = tuple(payload)
        if keys in self._fitting:
            return
        try:
            self.signature.bind(None, None, **payload)
        except TypeError as error:
            raise InvalidRequest(f"payload of {self.kind.name!r}: {error}") from None
        if len(self._fitting) < FITTING_MAX:
            self._fitting.add(keys)


class Registry:
    """The kinds this process knows, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._names: list[str] = []

    def add(self, task: Task) -> None:
        known = self._tasks.get(task.kind.name)
        if known is not None and _place(known.handler) != _place(task.handler):
            raise Configuration(
                f"task {task.kind.name!r} is declared twice: {_place(known.handler)} and"
                f" {_place(task.handler)}; give one another name"
            )
        self._tasks[task.kind.name] = task
        self._names = sorted(self._tasks)

    def get(self, name: str) -> Task | None:
        return self._tasks.get(name)

    def names(self) -> list[str]:
        return self._names

    def __iter__(self) -> Iterator[Task]:
        return iter(sorted(self._tasks.values(), key=lambda t: t.kind.name))


REGISTRY = Registry()
"""Filled by importing the modules that declare tasks; read once they are loaded."""


def task(
    name: str | Kind | None = None,
    queue: str = "default",
    ladder: Ladder = DEFAULT,
    max_attempts: int = 25,
    batch: int = 1,
    budget: float = 60.0,
    lane: str | None = None,
    priority: int = 2,
) -> Callable[[Handler], Task]:
    """Declare a kind. The function takes `(job, ctx, **payload)` and answers `Done()`,
    `Again(after)`, `Park(text)` or None (which is Done). It may run more than once: every
    effect of it must stand being repeated.

    `name` defaults to the function's; `budget` is seconds of one run; `lane` is the key
    whose concurrency is capped, when each enqueue doesn't name its own; `batch` jobs
    travel in one message and run one after the other. Raises Configuration on a value
    out of range or a name declared elsewhere.
    """

    def declare(handler: Handler) -> Task:
        kind = (
            name
            if isinstance(name, Kind)
            else Kind(
                name=name or str(getattr(handler, "__name__", "")),
                queue=queue,
                ladder=ladder,
                max_attempts=max_attempts,
                batch=batch,
                budget=budget,
                lane=lane,
                priority=priority,
            )
        )
        declared = Task(kind, handler, inspect.signature(handler))
        REGISTRY.add(declared)
        return declared

    return declare


def _place(handler: Handler) -> str:
    module = getattr(handler, "__module__", "?")
    return f"{module}.{getattr(handler, '__qualname__', '?')}"
