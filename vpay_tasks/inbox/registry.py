"""`@inbox.on`: which function grants which of a vendor's events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set
from typing import Final

from vpay_tasks.core.job import Answer
from vpay_tasks.errors import Configuration
from vpay_tasks.inbox.job import Event, InboxJob

Grant = Callable[[Event, InboxJob], Answer | None]

EVERY: Final = "*"


class Grants:
    """The grants that this process knows, by vendor and type."""

    def __init__(self) -> None:
        self._grants: dict[tuple[str, str], Grant] = {}

    def add(self, vendor: str, type_: str, grant: Grant) -> None:
        known = self._grants.get((vendor, type_))
        if known is not None and _place(known) != _place(grant):
            raise Configuration(
                f"inbox.on({vendor!r}, {type_!r}) stands twice: {_place(known)} and"
                f" {_place(grant)}; one event has one grant"
            )
        self._grants[vendor, type_] = grant

    def vendors(self) -> Set[str]:
        """Those for whose events there is a grant."""
        return {vendor for vendor, _ in self._grants}

    def find(self, vendor: str, type_: str) -> Grant | None:
        """The grant of exactly this type, else of the longest beginning of it, else of all."""
        words = type_.split(".")
        beginnings = [".".join([*words[:size], EVERY]) for size in range(len(words) - 1, -1, -1)]
        for name in (type_, *beginnings):
            if (grant := self._grants.get((vendor, name))) is not None:
                return grant
        return None


GRANTS = Grants()
"""Filled by importing the modules that declare grants; read once they are loaded."""


def on(vendor: str, type: str = EVERY) -> Callable[[Grant], Grant]:  # noqa: A002 - the contract's word
    """Declare the function that grants the events of `type` that come in at `/inbox/<vendor>`:
    an exact type, `payment_intent.*` for all that begin so, or `*`. The module must be named
    in the settings' `worker.modules`.

    The function takes `(event, job)` and may run more than once: `with job.finishing() as tx:`
    commits its writes, the event's end and the job's end together, or none of them. Without
    that the event is done once it returns. It answers `Done()` or nothing, `Again(seconds)`
    for what is no failure ("not paid yet"), or `Park(text)` to give the event up. If it
    raises, it is called again by the ladder, ten times more at most.
    """
    if type != EVERY and (not type or EVERY in type.removesuffix(".*")):
        raise Configuration(f"inbox.on({vendor!r}, {type!r}): a type, one with .* behind, or *")

    def declare(grant: Grant) -> Grant:
        if (fault := _fault(grant)) is not None:
            raise Configuration(f"inbox.on({vendor!r}, {type!r}): {_place(grant)} {fault}")
        GRANTS.add(vendor, type, grant)
        return grant

    return declare


def _fault(grant: Grant) -> str | None:
    """Why every call of it would fail. Told when its module is loaded: else each event would
    walk the whole ladder before a person hears of it."""
    if inspect.iscoroutinefunction(grant) or inspect.isgeneratorfunction(grant):
        return "would do nothing when it is called: it must be a plain function"
    try:
        inspect.signature(grant).bind(None, None)
    except TypeError as error:
        return f"doesn't take (event, job): {error}"
    return None


def _place(grant: Grant) -> str:
    module = getattr(grant, "__module__", "?")
    return f"{module}.{getattr(grant, '__qualname__', '?')}"
