"""Starting, group by group: what waits while one start is on its way goes into the next.

The first thread that comes leads: it sends the statement for all that wait with it, then
hands the lead to one that came meanwhile. An idle process pays no hand-over; a busy one
commits once for many starts.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from vpay_tasks.store.jobs import StartedJob
from vpay_tasks.store.leases import Lease

Swap = Callable[[Sequence[Lease], uuid.UUID], Sequence[StartedJob | None]]
"""Swaps these claims' tokens for the run token; for each claim what it started."""


NOT_TRIED: Final = uuid.UUID(int=0)


@dataclass(slots=True, eq=False)
class Waiting:
    """One message's start, until it is done."""

    claims: list[Lease]
    woken: threading.Event | None = None
    """Only for one that comes while another leads."""
    leads: bool = False
    token: uuid.UUID = NOT_TRIED
    """What its rows were given, or may have been."""
    started: list[StartedJob] = field(default_factory=list)
    error: Exception | None = None


class Starter:
    """`start` is called by the worker threads; each call is one message's."""

    def __init__(self, swap: Swap) -> None:
        self._swap = swap
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._led = False

    def start(self, claims: dict[int, uuid.UUID]) -> Waiting:
        """The message's rows that this process may run now, by the token that is tried; or
        the error of the statement that tried it."""
        mine = Waiting(list(claims.items()))
        with self._lock:
            self._waiting.append(mine)
            mine.leads, self._led = not self._led, True
            if not mine.leads:
                mine.woken = threading.Event()
        if mine.woken is not None:
            mine.woken.wait()
        if mine.leads:
            self._lead()
        return mine

    def _lead(self) -> None:
        """Start all that wait – the leader is among them – and hand the lead on."""
        with self._lock:
            group, self._waiting = self._waiting, []
        try:
            self._send(group)
        finally:
            with self._lock:
                heir = self._waiting[0] if self._waiting else None
                if heir is None:
                    self._led = False
                else:
                    heir.leads = True
            if heir is not None and heir.woken is not None:
                heir.woken.set()
            for done in group:
                if done.woken is not None:
                    done.woken.set()

    def _send(self, group: list[Waiting]) -> None:
        token = uuid.uuid4()
        for waiting in group:
            waiting.token = token
        whose = [waiting for waiting in group for _ in waiting.claims]
        claims = [claim for waiting in group for claim in waiting.claims]
        try:
            started = self._swap(claims, token)
        except Exception as error:  # noqa: BLE001 - told to every message that it was tried for
            for waiting in group:
                waiting.error = error
            return
        for waiting, job in zip(whose, started, strict=True):
            if job is not None:
                waiting.started.append(job)
