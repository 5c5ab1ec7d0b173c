"""`vpay-dispatch`: claim what is due, commit, and only then publish.

    tick(queue)   one claim, one publish; releases by token what could not be published
    loop          polls every 50 ms when idle, at once after a page that moved

The timers beside it (reaper.py, seeds.py) have threads and connections of their own, so
that a slow claim delays no recovery.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from typing import Final

from vpay_tasks.config import Settings
from vpay_tasks.core.task import Registry
from vpay_tasks.errors import Broker, Severity, VpayError
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.store import claims, db, jobs
from vpay_tasks.telemetry import count, report_failure, say

IDLE_S: Final = 0.050
"""Nothing is due: the pause until the next look. A hint ends it early."""

FULL_S: Final = 0.005
"""Something is due and the fleet has no room: room comes with the next settle. Doubled up to
the idle pause while none comes."""

NOBODY_S: Final = 0.25
"""Something is due and no worker lives that serves it. Longer: a new worker's first job
waits; shorter: claims for nothing."""

BACK_OFF_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
"""After failed publishes in a row: a broker's outage is no hot loop of claims."""


@dataclass
class QueueState:
    """What the loop remembers of one queue from tick to tick."""

    lanes_first: bool = False
    cursor: str = ""
    failures: int = 0
    full: int = 0
    not_before: float = 0.0

    def wait(self, seconds: float) -> float:
        """Leave this queue alone for `seconds`; the others go on."""
        self.not_before = time.monotonic() + seconds
        return seconds


class Dispatcher:
    """The loop. `stop()` may be called from a signal handler."""

    def __init__(self, settings: Settings, registry: Registry, broker: CarryingBroker) -> None:
        self.id = f"d_{secrets.token_hex(8)}"
        self.wake = threading.Event()
        self._settings = settings.dispatch
        self._url = settings.database_url
        self._broker = broker
        self._connection: db.Connection | None = None
        self._stopping = False
        self._lost = 0
        kinds = [task.kind for task in registry]
        self._batches = {
            queue: {kind.name: kind.batch for kind in kinds if kind.queue == queue}
            for queue in self._settings.queues
        }
        self._states = {queue: QueueState() for queue in self._settings.queues}

    def stop(self) -> None:
        # Nothing more: a handler may interrupt the very wait whose lock a wake would take.
        self._stopping = True

    def run(self) -> None:
        """Until `stop()`; the batch on its way is published first."""
        while not self._stopping:
            self.wake.clear()
            try:
                pause = self.look()
            except Exception as error:  # noqa: BLE001 - a dispatcher goes on whatever one look met
                pause = self._failed(error)
            else:
                self._lost = 0
            if pause > 0:
                self.wake.wait(pause)
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def look(self) -> float:
        """One look at every queue; the seconds to wait before the next."""
        now = time.monotonic()
        open_ = [queue for queue, state in self._states.items() if state.not_before <= now]
        pause = IDLE_S
        for due in claims.due_queues(self._connected(), open_):
            if self._stopping:
                break
            try:
                pause = min(pause, self.tick(due))
            except VpayError as error:
                if not db.usable(self._connection):
                    raise
                # Only this queue: another session holds its lock, say.
                pause = min(pause, self._queue_failed(due.queue, error))
        return pause

    def tick(self, due: claims.Due) -> float:
        """Claim from one queue and publish; the seconds this queue would wait now."""
        state = self._states[due.queue]
        claim = claims.claim(
            self._connected(),
            due,
            dispatcher=self.id,
            claim_lease=self._settings.claim_lease,
            window=self._settings.window,
            batches=self._batches[due.queue],
            lanes_first=state.lanes_first,
            cursor=state.cursor,
        )
        state.lanes_first = not state.lanes_first
        wrapped = state.cursor != "" and claim.next_lane == ""
        state.cursor = claim.next_lane
        if not claim.messages:
            return self._nothing(state, claim, wrapped=wrapped)
        state.full = 0
        count("claims", sum(len(message.ids) for message in claim.messages))
        self._publish(due.queue, state, claim.messages)
        return 0.0

    def _nothing(self, state: QueueState, claim: claims.Claim, *, wrapped: bool) -> float:
        if claim.threads == 0:
            return state.wait(NOBODY_S)
        if claim.room == 0:
            state.full += 1
            return state.wait(min(FULL_S * 2 ** min(state.full - 1, 10), IDLE_S))
        if wrapped:
            return 0.0  # the walk began in the middle: look at its beginning too
        # A walk that was cut goes on where it stopped.
        return FULL_S if claim.next_lane else IDLE_S

    def _publish(self, queue: str, state: QueueState, messages: list[claims.Claimed]) -> None:
        envelopes = [Envelope(queue, tuple(item.ids), item.lease) for item in messages]
        try:
            self._broker.publish(envelopes)
        except Broker as error:
            count("publish_failures")
            pause = BACK_OFF_S[min(state.failures, len(BACK_OFF_S) - 1)]
            if not state.failures:
                report_failure(error, "publishing failed; claims released", queue=queue)
            state.failures += 1
            state.wait(pause)
            # Whatever did arrive carries a token that its row no longer has.
            leases = {id_: item.lease for item in messages for id_ in item.ids}
            jobs.release(self._connected(), leases)
            return
        if state.failures:
            state.failures = 0
            say(Severity.INFO, "publishing works again", action="publish_back", queue=queue)
        count("published", len(envelopes))

    def _queue_failed(self, queue: str, error: VpayError) -> float:
        state = self._states[queue]
        count("machinery_failures")
        if not state.failures:
            report_failure(error, "a queue can't be claimed from; trying again", queue=queue)
        state.failures += 1
        return state.wait(BACK_OFF_S[min(state.failures - 1, len(BACK_OFF_S) - 1)])

    def _failed(self, error: Exception) -> float:
        count("machinery_failures")
        pause = BACK_OFF_S[min(self._lost, len(BACK_OFF_S) - 1)]
        if not self._lost:
            report_failure(error, "the dispatcher can't claim; trying again", action="claim")
        self._lost += 1
        return pause

    def _connected(self) -> db.Connection:
        if not db.usable(self._connection):
            self._connection = db.connect(
                self._url,
                application=f"vpay dispatch {self.id}",
                lock_timeout=2.0,
                plans=db.CLAIM_PLANS,
            )
        return self._connection
