"""Alerts and pages to Sentry, besides the log: a sentence, ids, which error and where. No text
of an error, no local variable, no line of source: those may hold what a payer or a vendor sent
(D46).

The client is one of our own, never the library's global one: an application that uses Sentry
itself keeps its settings, and what it has put beside its own events doesn't travel with ours.
"""

from __future__ import annotations

import re
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import sentry_sdk
from sentry_sdk.types import Event, Hint

from vpay_tasks.errors import Severity
from vpay_tasks.tables import SentryTable
from vpay_tasks.telemetry import FLUSH_S

NAMES: Final = frozenset(
    {
        *("action", "application", "attempt", "budget", "charge_id", "charge_ids", "customer_id"),
        *("delay", "deliveries", "delivery_id", "endpoint", "event_id", "exit", "intent_id"),
        *("job_id", "kind", "livemode", "merchant", "merchant_id", "object_id", "queue", "rail"),
        *("reason", "route", "seconds", "state", "status", "timer", "vendor", "worker"),
    }
)
"""The fields that go along. A new one stays at home until it is named here; `error` does for
good."""

VALUE: Final = re.compile(r"[\w.:/{}-]{1,100}", re.ASCII)
"""What an id, a name or a route looks like. A sentence or an address of a person has more."""

KEYS: Final = frozenset(
    {
        *("event_id", "timestamp", "platform", "level", "logger", "message", "fingerprint"),
        *("tags", "exception", "release", "environment", "server_name", "sdk"),
    }
)
"""All that an event may consist of, whatever the library learns to add to it."""

QUEUE: Final = 100
"""Events that wait to be sent; more are dropped, since the log has them. Higher: a server that
hangs costs memory."""

BURST: Final = 10
"""Of one sentence and kind in each WINDOW_S, from one process. Lower: the second payment of a
pair is missing; higher: an outage, in which every job alerts, is a bill."""

WINDOW_S: Final = 60.0

FRAMES: Final = 30
"""Of the newest; more of a recursion says nothing."""

LEVELS: Final = {
    Severity.INFO: "info",
    Severity.WARN: "warning",  # an alert that something is well again
    Severity.ERROR: "error",
    Severity.PAGE: "fatal",
}


class Reports:
    """Hears of alerts (`telemetry.send_alerts_to`). Sends from a thread of the library's."""

    def __init__(
        self, table: SentryTable, process: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table = table
        self._process = process
        self._clock = clock
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """See `Listener.begin`: a client's thread and queue don't survive a fork."""
        self._lock = threading.Lock()
        self._window_ends = 0.0
        self._seen: Counter[tuple[str, str]] = Counter()
        self._held: Counter[tuple[str, str]] = Counter()
        self._client = _client(self._table)

    def tell(
        self,
        severity: Severity,
        sentence: str,
        fields: Mapping[str, Any],
        error: BaseException | None,
    ) -> None:
        """Queue an event; never waits, never raises."""
        try:
            repeats = self._repeats((sentence, str(fields.get("kind", ""))))
            if repeats is not None:
                tags = {"process": self._process, **dict(_ids(fields))}
                if repeats:
                    tags["held_back"] = str(repeats)
                self._client.capture_event(_event(severity, sentence, tags, error))
        except Exception:  # noqa: BLE001, S110 - the log has the alert; a payment must not fail by its report
            pass

    def flush(self) -> None:
        with suppress(Exception):  # who calls it is about to end, and must
            self._client.flush(timeout=FLUSH_S)

    def _repeats(self, key: tuple[str, str]) -> int | None:
        """How many like it were held back since the last one that went; None: hold this one."""
        now = self._clock()
        with self._lock:
            if now >= self._window_ends:
                self._window_ends = now + WINDOW_S
                self._seen.clear()
            self._seen[key] += 1
            if self._seen[key] > BURST:
                self._held[key] += 1
                return None
            return self._held.pop(key, 0)


def _client(table: SentryTable) -> sentry_sdk.Client:
    """With everything off that it does by itself. It would read the rest from the environment
    (release, spotlight), or from git."""
    assert table.dsn is not None
    return sentry_sdk.Client(
        dsn=table.dsn.get_secret_value(),
        environment=table.environment,
        release=_release(),
        server_name=socket.gethostname(),
        default_integrations=False,
        auto_enabling_integrations=False,
        integrations=[],
        auto_session_tracking=False,
        send_client_reports=False,
        enable_backpressure_handling=False,
        include_local_variables=False,
        include_source_context=False,
        attach_stacktrace=False,
        max_breadcrumbs=0,
        max_request_body_size="never",
        transport_queue_size=QUEUE,
        shutdown_timeout=FLUSH_S,
        spotlight=False,
        debug=False,
        before_send=_only_ours,
    )


def _release() -> str:
    try:
        return f"vpay-tasks@{version('vpay-tasks')}"
    except PackageNotFoundError:  # run from a checkout
        return "vpay-tasks"


def _only_ours(event: Event, _: Hint) -> Event | None:
    """The last wall: `_event` writes nothing else, but a later release of the library may."""
    for key in set(event) - KEYS:
        del event[key]  # type: ignore[misc]
    return event


def _event(
    severity: Severity, sentence: str, tags: dict[str, str], error: BaseException | None
) -> Event:
    event: Event = {
        "level": LEVELS[severity],  # type: ignore[typeddict-item]
        "logger": "vpay_tasks",
        "message": sentence,
        "fingerprint": [sentence, tags.get("kind", ""), tags.get("rail", "")],
        "tags": tags,
    }
    if error is not None:
        event["exception"] = {"values": [*_chain(error)][::-1]}
    return event


def _ids(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in sorted(NAMES & set(fields)):
        value = fields[name]
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if all(VALUE.fullmatch(part) for part in text.split(",")):
            yield name, text[:200]


def _chain(error: BaseException) -> Iterator[dict[str, Any]]:
    """The error and its causes: class, and where it came by. As `errors.describe`, less text."""
    link: BaseException | None = error
    for _ in range(8):  # a cycle of causes must end
        if link is None:
            return
        told: dict[str, Any] = {"type": type(link).__name__, "module": type(link).__module__}
        if frames := traceback.StackSummary.extract(
            traceback.walk_tb(link.__traceback__), lookup_lines=False
        )[-FRAMES:]:
            told["stacktrace"] = {
                "frames": [
                    {
                        "filename": frame.filename.rpartition("/")[2],
                        "function": frame.name,
                        "lineno": frame.lineno,
                    }
                    for frame in frames
                ]
            }
        yield told
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
