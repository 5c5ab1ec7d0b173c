"""What every broker of ours is: a thin subclass that carries envelopes and decides nothing.

Dramatiq's own middleware is left out, all of it: its hooks fail open (an exception in a
before-hook still runs the actor), its after-hooks can fire twice, and its time limits kill
worker threads for good. Settling is in the actor's own function (run_job.py).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import dramatiq

from vpay_tasks.errors import Configuration
from vpay_tasks.runtime.envelope import Envelope


def actor_name(queue: str) -> str:
    """The name of the one actor of a queue. It never leaves the process."""
    return f"run {queue}"


def key(queue: str) -> str:
    """What a queue of ours is called in a broker that others may use, too."""
    return f"vpay:{queue}"


_UNKNOWN_AUTHORITY: Final = (
    "name the authority that signed it in broker.url (rediss:// …?ssl_ca_certs=/path/to/ca.pem,"
    " amqps:// …?ssl_options={'ca_certs':'/path/to/ca.pem'})"
)
_NO_TLS: Final = (
    "no TLS is spoken there: write the port that speaks it; if it is that one, somebody in"
    " between answers in the broker's place"
)
_REMEDIES: Final = {
    "certificate has expired": "renew the certificate there",
    "local issuer": _UNKNOWN_AUTHORITY,
    "self-signed": _UNKNOWN_AUTHORITY,
    "mismatch": "write the name into broker.url that the certificate has",
    "wrong version number": _NO_TLS,
    "record layer failure": _NO_TLS,
    "handshake operation timed out": _NO_TLS,
}
"""By words of Python's."""


def advised(text: str) -> str:
    """`text` about a broker that can't be reached, with what to do where TLS is the reason."""
    remedy = next((what for words, what in _REMEDIES.items() if words in text.lower()), None)
    return f"{text}: {remedy}" if remedy else text


class Held:
    """Envelopes that this process has taken out of the broker and not begun.

    Either a worker thread takes one (and starts it) or the drain releases it: whoever
    pops it here first, never both.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, Envelope] = {}
        self._numbers = itertools.count(1)

    def put(self, envelope: Envelope) -> int:
        with self._lock:
            number = next(self._numbers)
            self._held[number] = envelope
            return number

    def take(self, number: int) -> Envelope | None:
        """The envelope, for whoever asks first."""
        with self._lock:
            return self._held.pop(number, None)

    def take_all(self) -> list[Envelope]:
        with self._lock:
            everything = list(self._held.values())
            self._held.clear()
            return everything


class CarryingBroker(dramatiq.Broker):
    """What every broker of ours shares; a child moves bytes."""

    def __init__(self, middleware: Iterable[dramatiq.Middleware] = ()) -> None:
        super().__init__(middleware=list(middleware))
        self.held = Held()
        self.give_back: Callable[[Envelope], None] = lambda _: None
        """What becomes of a message that came out of the broker after the drain began."""
        self.draining = threading.Event()
        """Set once: consumers then take nothing more out of the broker."""
        self.threads = 8
        """Worker threads of this process; set when its worker boots."""
        self.served: set[str] | None = None
        """The queues that this process consumes; None: all that are declared."""

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Hand all of `envelopes` (of one queue) over, in one go. Raises errors.Broker; then
        it is unknown which of them arrived."""
        raise NotImplementedError

    def ping(self) -> None:
        """Raises errors.Broker when the broker can't be asked."""
        raise NotImplementedError

    def evicts(self) -> str | None:
        """The policy by which a full broker throws messages away, if it does. Raises
        errors.Broker."""
        return None

    def gullible(self) -> str | None:
        """What to change, if its TLS would take another server for the broker."""
        return None

    def declare_queue(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(
        self, message: dramatiq.Message[Any], *, delay: int | None = None
    ) -> dramatiq.Message[Any]:
        raise Configuration(
            "actors of vpay_tasks are not sent to directly: enqueue the job in Postgres with"
            " vpay_tasks.enqueue(tx, kind, payload)"
        )

    def in_flight_max(self) -> int:
        """Messages of one queue that this process may hold, running ones included. One
        thread stays free of each queue where several are served, so that none starves; and
        never more than the threads: a message must not wait here while it could run
        elsewhere."""
        queues = len(self.served) if self.served is not None else len(self.queues)
        return max(1, self.threads - 1) if queues > 1 else self.threads

    def as_message(self, envelope: Envelope) -> dramatiq.Message[Any]:
        """`envelope` as the in-memory message that Dramatiq hands to a worker thread."""
        number = self.held.put(envelope)
        return dramatiq.Message(
            queue_name=envelope.queue,
            actor_name=actor_name(envelope.queue),
            args=(number,),
            kwargs={},
            options={},
        )
