"""The dispatcher's line to RabbitMQ: many publishes, then one wait for all their confirms.

It has a thread of its own, which also answers heartbeats while the dispatcher is idle or
busy elsewhere, notices a lost connection at once, and lets a publish have a deadline. A
blocking connection offers none of the three: its confirms are waited for one by one (64
messages: 180 ms instead of 9), and a queue without a leader would be waited for for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import pika
import pika.exceptions

from vpay_tasks.errors import Broker
from vpay_tasks.runtime.carrier import advised

CONFIRM_S: Final = 5.0
"""For a connection, and for the confirms of one publish. Lower: a slow disk of the server
counts as a failure; higher: the claims (30 s) run out while the dispatcher waits."""

QUEUE: Final = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
"""How a queue of ours is declared, by whoever needs it first."""

PERSISTENT: Final = 2


def refusal(queue: str, text: str) -> Broker:
    """The server refused to declare `queue` as ours, with `text`."""
    return Broker(
        f"RabbitMQ refused the queue {queue}: {text}. If it stands with other arguments: stop"
        " what uses it and delete it (rabbitmqctl delete_queue); nothing in it is needed, it"
        " is declared anew"
    )


class Batch:
    """Messages of one publish, and what became of them."""

    def __init__(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.queue = queue
        self.bodies = bodies
        self.open = 0
        """Sent and not confirmed; the line's thread counts."""
        self.error: Broker | None = None
        self.done = threading.Event()

    def fail(self, error: Broker) -> None:
        """The first failure is the one that is told."""
        self.error = self.error or error
        self.done.set()


def _innermost(error: BaseException) -> str:
    """The library wraps what happened, several times over, in errors that say nothing of it."""
    while (inner := _inside(error)) is not None:
        error = inner
    return f"{type(error).__name__}: {error}"


def _inside(error: BaseException) -> BaseException | None:
    held = (*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args)
    return next((one for one in held if isinstance(one, BaseException)), None)


class Line:
    """One connection with one channel, for as long as both live. Used by one thread at a
    time; what begins with `_on` and `_send` runs in the line's own thread."""

    def __init__(self, parameters: Any) -> None:
        self._parameters = parameters
        self._ready = threading.Event()
        self._over: Broker | None = None
        self._blocked = ""
        self._connection: Any = None
        self._channel: Any = None
        self._declared: set[str] = set()
        self._batch: Batch | None = None
        self._sent = 0
        self._unconfirmed: dict[int, Batch] = {}
        self._thread = threading.Thread(target=self._live, name="vpay-rabbit-line", daemon=True)
        self._thread.start()
        if not self._ready.wait(CONFIRM_S):
            self.close()
            raise Broker(f"RabbitMQ did not answer within {CONFIRM_S:g} s")
        if self._over is not None:
            raise self._over

    @property
    def usable(self) -> bool:
        return self._over is None

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        """All of `bodies`, or errors.Broker; then it is unknown which of them arrived."""
        batch = Batch(queue, bodies)
        self._run(lambda: self._send(batch))
        if not batch.done.wait(CONFIRM_S):
            # What it still has to say belongs to nobody.
            self.close()
            raise Broker(f"RabbitMQ did not confirm within {CONFIRM_S:g} s")
        if batch.error is not None:
            raise batch.error

    def close(self) -> None:
        """Let the connection end; waits a moment for it."""
        self._over = self._over or Broker("the connection to RabbitMQ was closed")
        self._run(self._hang_up)
        self._thread.join(timeout=1)

    def _run(self, what: Any) -> None:
        if self._connection is not None:
            self._connection.ioloop.add_callback_threadsafe(what)

    def _live(self) -> None:
        try:
            connection = self._connection = pika.SelectConnection(
                self._parameters,
                on_open_callback=self._on_open,
                on_open_error_callback=self._on_lost,
                on_close_callback=self._on_lost,
            )
            connection.ioloop.start()
            connection.ioloop.close()
        except Exception as error:  # noqa: BLE001 - a thread that dies must leave nobody waiting
            self._end(f"{type(error).__name__}: {error}")

    def _hang_up(self) -> None:
        if not (self._connection.is_closing or self._connection.is_closed):
            self._connection.close()

    def _end(self, why: str) -> None:
        self._over = self._over or Broker(advised(f"the connection to RabbitMQ was lost: {why}"))
        if self._batch is not None:
            self._batch.fail(self._over)
        self._ready.set()

    def _on_lost(self, connection: Any, reason: BaseException | str) -> None:
        self._end(reason if isinstance(reason, str) else _innermost(reason))
        self._connection.ioloop.stop()

    def _on_open(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._ready.set())

    def _on_channel_closed(self, channel: Any, reason: Any) -> None:
        if self._batch is not None and self._batch.queue not in self._declared:
            self._batch.fail(refusal(self._batch.queue, str(reason)))
        self._end(f"its channel was closed: {reason}")
        self._hang_up()

    def _on_blocked(self, connection: Any, frame: Any) -> None:
        """An alarm: the server reads nothing more from whoever publishes."""
        self._blocked = str(frame.method.reason)
        if self._batch is not None:
            self._batch.fail(self._alarm())

    def _on_unblocked(self, connection: Any, frame: Any) -> None:
        self._blocked = ""

    def _alarm(self) -> Broker:
        return Broker(f"RabbitMQ takes no messages now: {self._blocked}")

    def _send(self, batch: Batch) -> None:
        self._batch = batch
        if self._over is not None:
            batch.fail(self._over)
        elif self._blocked:
            batch.fail(self._alarm())
        elif batch.queue in self._declared:
            self._send_declared(batch)
        else:
            self._channel.queue_declare(
                batch.queue, **QUEUE, callback=lambda _: self._on_declared(batch)
            )

    def _on_declared(self, batch: Batch) -> None:
        self._declared.add(batch.queue)
        if batch.error is None:
            self._send_declared(batch)

    def _send_declared(self, batch: Batch) -> None:
        properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        for body in batch.bodies:
            self._channel.basic_publish("", batch.queue, body, properties, mandatory=True)
            self._sent += 1
            self._unconfirmed[self._sent] = batch
        batch.open = len(batch.bodies)

    def _on_return(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Unroutable: somebody deleted the queue. The next publish declares it."""
        self._declared.discard(method.routing_key)
        if self._batch is not None:
            self._batch.fail(Broker(f"RabbitMQ has no queue {method.routing_key} any more"))

    def _on_confirm(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        tags = [t for t in self._unconfirmed if t <= tag] if frame.method.multiple else [tag]
        for each in tags:
            batch = self._unconfirmed.pop(each, None)
            if batch is None:
                continue
            if isinstance(frame.method, pika.spec.Basic.Nack):
                batch.fail(Broker(f"RabbitMQ could not store a message in {batch.queue}"))
            batch.open -= 1
            if batch.open == 0:
                batch.done.set()
