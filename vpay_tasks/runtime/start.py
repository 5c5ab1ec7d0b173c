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

from vpay_tasks.store.jobs import StartedJob
from vpay_tasks.store.leases import Lease

Swap = Callable[[Sequence[Lease], uuid.UUID], dict[Lease, StartedJob]]
"""Swaps these claims' tokens for the run token; the rows by the claim that they carried."""


@dataclass
class Waiting:
    """One message's start, until it is done."""

    claims: list[Lease]
    woken: threading.Event = field(default_factory=threading.Event)
    leads: bool = False
    token: uuid.UUID = field(default_factory=uuid.uuid4)
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
            for done in group:
                done.woken.set()
            if heir is not None:
                heir.woken.set()

    def _send(self, group: list[Waiting]) -> None:
        token = group[0].token
        for waiting in group:
            waiting.token = token
        # Two copies of a message may wait together: the row is the first one's.
        claims = list(dict.fromkeys(claim for waiting in group for claim in waiting.claims))
        try:
            started = self._swap(claims, token)
        except Exception as error:  # noqa: BLE001 - told to every message that it was tried for
            for waiting in group:
                waiting.error = error
            return
        for waiting in group:
            found = (started.pop(claim, None) for claim in waiting.claims)
            waiting.started = sorted((job for job in found if job), key=lambda job: job.id)
