"""What every consumer of ours is: broker messages in, envelopes for worker threads out."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Final

import dramatiq

from vpay_tasks.errors import Broker, Severity, describe
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.envelope import Envelope, Refused, decode
from vpay_tasks.telemetry import count, say

FULL_S: Final = 0.5
"""How long a full process waits for one of its own jobs to end before it tells its broker.
Lower: with RabbitMQ, jobs of that length make it cancel and subscribe all the time; higher:
a message waits here that a free thread elsewhere could run."""

PATIENCE_S: Final = 0.1
BACK_OFF_S: Final = 3.0
"""Between tries to reach a lost broker: from the first to the second, doubling."""


class Intake(dramatiq.Consumer):
    """Takes no more than this process can run. Never raises: a lost broker is waited for."""

    def __init__(self, broker: CarryingBroker, queue: str) -> None:
        self._broker = broker
        self._queue = queue
        self._room = threading.Condition()
        self._in_flight = 0
        self._taken: list[bytes] = []
        self._wait_s = 0.0

    def take(self, most: int) -> list[bytes]:
        """Up to `most` messages, waiting about a second for the first. They are out of the
        broker then: what dies with them here comes back with the database's lease. Raises
        errors.Broker."""
        raise NotImplementedError

    def full(self) -> None:
        """Nothing more can be run here, for a while already. Raises errors.Broker."""

    def leave(self) -> None:
        """Take nothing more, ever. Called again and again while the process drains."""

    def __iter__(self) -> Iterator[dramatiq.MessageProxy | None]:  # type: ignore[override]
        return self

    def __next__(self) -> dramatiq.MessageProxy | None:
        if not self._taken:
            self._taken = self._look()
        while self._taken:
            envelope = self._read(self._taken.pop(0))
            if envelope is not None and self._broker.draining.is_set():
                self._broker.give_back(envelope)  # a pop that was under way at the signal
            elif envelope is not None:
                with self._room:
                    self._in_flight += 1
                return dramatiq.MessageProxy(self._broker.as_message(envelope))
        return None

    def ack(self, message: dramatiq.MessageProxy) -> None:
        """A message has been run; the broker has nothing to hear of it."""
        with self._room:
            self._in_flight = max(0, self._in_flight - 1)
            self._room.notify()

    def nack(self, message: dramatiq.MessageProxy) -> None:
        self.ack(message)

    def requeue(self, messages: Iterable[dramatiq.MessageProxy]) -> None:
        """Nothing to do: the drain has released what was not begun."""

    def _read(self, raw: bytes) -> Envelope | None:
        try:
            return decode(raw, self._queue)
        except Refused as refusal:
            count("messages_refused")
            say(
                Severity.WARN,
                "a broker message was refused",
                action="message_refused",
                queue=self._queue,
                why=str(refusal),
                size=len(raw),
            )
            return None

    def _look(self) -> list[bytes]:
        if self._broker.draining.wait(self._wait_s):
            self.leave()
            with self._room:
                self._room.wait(PATIENCE_S)  # drained: idle until the thread is stopped
            return []
        most = self._free()
        try:
            if most <= 0:
                self.full()
                taken = []
            else:
                taken = self.take(most)
        except Broker as error:
            if self._wait_s == 0:
                say(
                    Severity.ERROR,
                    "the broker is out of reach; trying again until it is back",
                    action="broker_lost",
                    queue=self._queue,
                    error=describe(error),
                )
            self._wait_s = min(max(self._wait_s * 2, PATIENCE_S), BACK_OFF_S)
            return []
        if self._wait_s:
            self._wait_s = 0.0
            say(Severity.INFO, "the broker is back", action="broker_back", queue=self._queue)
        return taken

    def _free(self) -> int:
        """Messages that could be taken now; when none could, after a wait for one to end."""
        with self._room:
            if self._in_flight >= self._broker.in_flight_max():
                self._room.wait(FULL_S)
            return self._broker.in_flight_max() - self._in_flight
