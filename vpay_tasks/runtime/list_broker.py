"""Redis or Valkey as a plain list with a blocking pop.

No acknowledgements, no scripts: what a crash loses here comes back with the database's
lease. In exchange a message is picked up in about a millisecond, many travel per round
trip, and a poisoned one can strand nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

import dramatiq
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from vpay_tasks.errors import Broker, Severity, describe
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.envelope import Envelope, Refused, decode, encode
from vpay_tasks.telemetry import count, say

POP_S: Final = 1.0
"""One blocking pop. Longer: a drain waits for it; shorter: more idle round trips."""

PATIENCE_S: Final = 0.1
BACK_OFF_S: Final = 3.0
"""Between tries to reach a lost broker: from the first to the second, doubling."""


def key(queue: str) -> str:
    """The list that holds a queue's messages."""
    return f"vpay:{queue}"


class ListBroker(CarryingBroker):
    """`publish` pushes, consumers pop. Needs Redis 7.0 or Valkey 7.2 (BLMPOP)."""

    def __init__(self, url: str, middleware: Iterable[dramatiq.Middleware] = ()) -> None:
        super().__init__(middleware)
        address = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url
        self._client = redis.Redis.from_url(
            address,
            # Neither push nor pop may be repeated blindly: a repeated pop loses what the
            # first one took. The lease heals a lost answer; a retry here would not.
            retry=Retry(NoBackoff(), 0),
            socket_timeout=POP_S + 4,
            socket_connect_timeout=5,
            socket_keepalive=True,
        )

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        if not envelopes:
            return
        try:
            self._client.rpush(key(envelopes[0].queue), *map(encode, envelopes))
        except redis.RedisError as error:
            raise Broker(f"publishing failed: {describe(error)}") from None

    def ping(self) -> None:
        try:
            self._client.ping()
        except redis.RedisError as error:
            raise Broker(f"the broker is out of reach: {describe(error)}") from None

    def pop(self, queue: str, most: int) -> list[bytes]:
        """Up to `most` messages, waiting up to a second for the first."""
        answer = self._client.blmpop(POP_S, 1, key(queue), direction="LEFT", count=most)
        return cast("list[bytes]", answer[1]) if answer else []

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 1_000) -> ListConsumer:
        return ListConsumer(self, queue_name)

    def flush(self, queue_name: str) -> None:
        self._client.delete(key(queue_name))

    def close(self) -> None:
        self._client.close()


class ListConsumer(dramatiq.Consumer):
    """Pops no more than this process can run. Never raises: a lost broker is waited for."""

    def __init__(self, broker: ListBroker, queue: str) -> None:
        self._broker = broker
        self._queue = queue
        self._room = threading.Condition()
        self._in_flight = 0
        self._popped: list[bytes] = []
        self._wait_s = 0.0

    def __iter__(self) -> Iterator[dramatiq.MessageProxy | None]:  # type: ignore[override]
        return self

    def __next__(self) -> dramatiq.MessageProxy | None:
        if not self._popped:
            self._popped = self._pop()
        while self._popped:
            raw = self._popped.pop(0)
            try:
                envelope = decode(raw, self._queue)
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
                continue
            with self._room:
                self._in_flight += 1
            return dramatiq.MessageProxy(self._broker.as_message(envelope))
        return None

    def ack(self, message: dramatiq.MessageProxy) -> None:
        with self._room:
            self._in_flight = max(0, self._in_flight - 1)
            self._room.notify()

    def nack(self, message: dramatiq.MessageProxy) -> None:
        self.ack(message)

    def requeue(self, messages: Iterable[dramatiq.MessageProxy]) -> None:
        """Nothing to do: the drain has released what was not begun."""

    def _pop(self) -> list[bytes]:
        with self._room:
            most = self._broker.in_flight_max() - self._in_flight
            if most <= 0:
                self._room.wait(POP_S)
                return []
        if self._broker.draining.wait(self._wait_s):
            self._wait_s = PATIENCE_S  # drained: idle until the thread is stopped
            return []
        try:
            popped = self._broker.pop(self._queue, most)
        except redis.RedisError as error:
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
        return popped
