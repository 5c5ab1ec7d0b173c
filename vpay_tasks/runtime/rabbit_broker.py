"""RabbitMQ: quorum queues, publishes confirmed by the batch, early acknowledgements.

A message is acknowledged when it is handed to a worker thread: Postgres holds the truth, so
there is nothing to redeliver. So no job is too long for the server's consumer timeout, and
no late acknowledgement can reach a channel that came after its own, where its number would
mean another message.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import dramatiq
import pika
import pika.exceptions

from vpay_tasks.errors import Broker, Configuration, VpayError, describe
from vpay_tasks.runtime.carrier import CarryingBroker, advised, key
from vpay_tasks.runtime.envelope import Envelope, encode
from vpay_tasks.runtime.intake import Intake
from vpay_tasks.runtime.rabbit_line import QUEUE, Line, refusal

WAIT_S: Final = 1.0
"""One wait for a message. Longer: a drain waits for it; shorter: an idle process wakes often."""

HEARTBEAT_S: Final = 10
"""A server that fell silent is given up after 15 to 30 s. Lower: a busy process that leaves
its consumer no time is cut off; higher: a dead connection looks alive for longer."""

CONNECT_S: Final = 5.0

# It logs every refused connection several times over, with tracebacks; we tell it once.
logging.getLogger("pika").setLevel(logging.CRITICAL)


class RabbitBroker(CarryingBroker):
    """`publish` belongs to one thread at a time (it takes turns); consumers have a connection
    each. RabbitMQ 3.10 or newer."""

    def __init__(self, url: str, middleware: Iterable[dramatiq.Middleware] = ()) -> None:
        super().__init__(middleware)
        try:
            self._parameters = pika.URLParameters(url)
        except Exception as error:  # noqa: BLE001 - it raises whatever the parts of a URL do
            # Its text may quote the address, password included.
            raise Configuration(
                f"broker.url: pika can't read it ({type(error).__name__})"
            ) from None
        self._parameters.heartbeat = HEARTBEAT_S
        self._parameters.socket_timeout = CONNECT_S
        self._parameters.stack_timeout = CONNECT_S
        # No publish shares their connection, so no alarm should ever block one; were one
        # blocked all the same, it would be replaced.
        self._parameters.blocked_connection_timeout = CONNECT_S * 2
        self._parameters.client_properties = {"connection_name": "vpay"}
        self._line: Line | None = None
        self._turn = threading.Lock()

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        if not envelopes:
            return
        with self._turn:
            if self._line is None or not self._line.usable:
                self._line = Line(self._parameters)
            self._line.publish(key(envelopes[0].queue), [encode(one) for one in envelopes])

    def ping(self) -> None:
        with self.connected() as connection:
            for queue in sorted(self.queues if self.served is None else self.served):
                declare(connection, queue)

    def gullible(self) -> str | None:
        options = self._parameters.ssl_options
        if options is None:
            return None
        if options.context.verify_mode is ssl.CERT_REQUIRED and options.context.check_hostname:
            return None
        return "take protocol out of ssl_options"

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 1_000) -> RabbitConsumer:
        return RabbitConsumer(self, queue_name)

    def connect(self) -> Any:
        """A blocking connection for the calling thread. Raises Broker."""
        with told("RabbitMQ is out of reach"):
            return pika.BlockingConnection(self._parameters)

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """A blocking connection for a moment. Raises Broker."""
        connection = self.connect()
        try:
            with told("RabbitMQ failed"):
                yield connection
        finally:
            hang_up(connection)

    def flush(self, queue_name: str) -> None:
        with self.connected() as connection:
            declare(connection, queue_name).queue_purge(key(queue_name))

    def close(self) -> None:
        with self._turn:
            if self._line is not None:
                self._line.close()
                self._line = None


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """The library's errors as ours."""
    try:
        yield
    except VpayError:
        raise
    except Exception as error:  # noqa: BLE001 - it also raises the socket's, and assertions when a connection ends at a bad moment: replacing the connection is right for all
        raise Broker(advised(f"{what}: {describe(error)}")) from None


def declare(connection: Any, queue: str) -> Any:
    """A channel on which `queue` was declared: it stands, as ours. Raises Broker."""
    channel = connection.channel()
    try:
        channel.queue_declare(key(queue), **QUEUE)
    except pika.exceptions.ChannelClosedByBroker as error:
        raise refusal(key(queue), error.reply_text) from None
    return channel


def hang_up(connection: Any) -> None:
    """Close it, whatever state it is in: what was not acknowledged goes back to its queue."""
    with contextlib.suppress(Broker), told("closing failed"):
        if connection.is_open:
            connection.close()


class RabbitConsumer(Intake):
    """Is pushed messages by one queue, while it has threads for them."""

    def __init__(self, broker: RabbitBroker, queue: str) -> None:
        super().__init__(broker, queue)
        self._rabbit = broker
        self._connection: Any = None
        self._channel: Any = None
        self._subscription = ""
        self._pushed = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        """Pushed and not acknowledged, oldest first: not ours yet."""

    def take(self, most: int) -> list[bytes]:
        with self._reached():
            if not self._waiting:
                self._subscribe(most)
                self._connection.process_data_events(time_limit=WAIT_S)
            if self._broker.draining.is_set() or not self._waiting:
                return []
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            # On the channel that they came over, all in one: they came in this order.
            self._channel.basic_ack(taken[-1][0], multiple=True)
            return [body for _, body in taken]

    def full(self) -> None:
        """Let the others have what waits here, and be pushed nothing more until there is
        room again."""
        with self._reached():
            self._unsubscribe()
            if self._waiting:
                self._channel.basic_nack(self._waiting[-1][0], multiple=True, requeue=True)
                self._waiting.clear()
            self._connection.process_data_events(time_limit=0)

    def leave(self) -> None:
        """What was pushed and not handed over goes back to the queue with the connection."""
        self._drop()

    def close(self) -> None:
        self._drop()

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Connected, for one step. A step that fails drops the connection: the server then
        puts back what was not acknowledged, and the numbers of its messages end with it."""
        try:
            if self._connection is None:
                self._connection = self._rabbit.connect()
                with told("RabbitMQ failed"):
                    self._channel = declare(self._connection, self._queue)
                    self._channel.add_on_cancel_callback(self._on_cancelled)
            with told("RabbitMQ failed"):
                yield
        except Broker:
            self._drop()
            raise

    def _subscribe(self, room: int) -> None:
        """Be pushed as many as there is room for now. More would wait here for a thread that
        others may have; later, with much more room, so few would have to come one by one."""
        if self._subscription and room < 2 * self._pushed:
            return
        self._unsubscribe()
        self._channel.basic_qos(prefetch_count=room)
        self._subscription = self._channel.basic_consume(key(self._queue), self._on_message)
        self._pushed = room

    def _unsubscribe(self) -> None:
        if self._subscription:
            self._channel.basic_cancel(self._subscription)
            self._subscription = ""

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._waiting.append((method.delivery_tag, body))

    def _on_cancelled(self, frame: Any) -> None:
        """The queue was deleted, or its node left it."""
        raise Broker(f"RabbitMQ took the queue {key(self._queue)} away")

    def _drop(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._subscription = ""
        self._waiting.clear()
        if connection is not None:
            hang_up(connection)
