"""What the outside sees: log lines, counters, alerts. Every field and metric name is here.

A log line is one JSON object: a fixed sentence and fields. Counters of a worker travel in
its `workers` row and are exported by the dispatcher (spec 1, Gauges); so a counter is a
number in this process, nothing more.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from vpay_tasks.errors import Severity, VpayError, describe

log: Final = logging.getLogger("vpay_tasks")

COUNTERS: Final = {
    "jobs_started": "Jobs started (the lease was swapped).",
    "jobs_finished": "Jobs settled as finished.",
    "jobs_rescheduled": "Jobs settled as due again later.",
    "jobs_parked": "Jobs settled as dead letters.",
    "job_failures": "Jobs that ended by an error.",
    "alerts": "Log lines with alert = true.",
    "pages": "Those of them that wake a person: level critical.",
    "settles_lost": "Settles that matched no row: the lease had moved on.",
    "settles_ambiguous": "Settles whose commit lost its answer and were re-read.",
    "ambiguous_unknown": "Ambiguous settles whose end could not be told; left alone.",
    "settle_groups": "Settle statements sent.",
    "settle_group_jobs": "Jobs settled by them.",
    "duplicates_refused": "Messages whose claim token had been used or reaped.",
    "messages_refused": "Broker messages that are not ours: foreign, poisoned, oversized.",
    "leases_lost": "Running jobs whose lease was found moved on while they ran.",
    "over_budget": "Jobs cancelled past their budget.",
    "machinery_failures": "Claims, publishes, reaps, seeds, pulses that could not run.",
    "claims": "Rows claimed.",
    "published": "Messages published.",
    "publish_failures": "Publishes that failed; their claims were released.",
    "reaped_claim_expired": "Claimed rows freed past their lease; they never ran.",
    "reaped_run_expired": "Running rows freed past their lease.",
    "reaped_worker_gone": "Running rows freed because their worker is dead.",
    "rail_calls": "Requests to payment rails.",
    "exposure": "Submits beyond a charge's first: one reference, but the rail was asked again.",
    "posts": "Webhook requests sent.",
    "deliveries_exhausted": "Deliveries given up at the end of their ladder.",
    "swept": "Rows that sweeps took away, expired, erased or emptied.",
    "sweep_failures": "Rows that a sweep could not move; the next one tries them again.",
    "inbox_received": "Vendors' deliveries that were verified and kept, repeats included.",
    "inbox_duplicates": "Those of them that were repeats of a kept event.",
    "inbox_failures": "Attempts to grant an event that raised.",
    "inbox_refused_missing": "Deliveries refused: without a signature.",
    "inbox_refused_malformed": "Deliveries refused: their signature can't be read.",
    "inbox_refused_stale": "Deliveries refused: signed too long ago, or by another clock.",
    "inbox_refused_mismatch": "Deliveries refused: signed with none of our secrets.",
}
"""Closed: `count()` of another name is a bug. Values say what one unit means."""

_counts: Counter[str] = Counter()
_counts_lock = threading.Lock()


def count(name: str, by: int = 1) -> None:
    """Add `by` to the counter `name` of this process."""
    if name not in COUNTERS:
        raise KeyError(name)
    with _counts_lock:
        _counts[name] += by


def counts() -> dict[str, int]:
    """A copy of this process's counters."""
    with _counts_lock:
        return dict(_counts)


def reset_after_fork() -> None:
    """A child's counters start at nothing; the parent keeps its own."""
    with _counts_lock:
        _counts.clear()
    for listener in _listeners:
        listener.begin()


class Listener(Protocol):
    """Hears of alerts, besides the log."""

    def begin(self) -> None:
        """In a process that was forked: what the parent had (threads, locks) is not there."""

    def tell(
        self,
        severity: Severity,
        sentence: str,
        fields: Mapping[str, Any],
        error: BaseException | None,
    ) -> None:
        """Must neither wait nor raise: whoever alerts may be in the middle of a payment."""

    def flush(self) -> None:
        """Before the process ends; returns within FLUSH_S, and never raises."""


FLUSH_S: Final = 1.0
"""How long a process that ends waits for what its listeners have not sent. Lower: the alert
that says why it ends is lost with it; higher: it comes out of the five seconds between a
worker's grace and its supervisor's patience."""

_listeners: list[Listener] = []


def send_alerts_to(*listeners: Listener) -> None:
    """From now on, and to nobody else."""
    _listeners[:] = listeners


def flush_alerts() -> None:
    """What every process of ours calls before it ends."""
    for listener in _listeners:
        listener.flush()


_LEVEL: Final = {
    Severity.INFO: logging.INFO,
    Severity.WARN: logging.WARNING,
    Severity.ERROR: logging.ERROR,
    Severity.PAGE: logging.CRITICAL,
}


def say(severity: Severity, sentence: str, **fields: Any) -> None:
    """One line: a fixed sentence, and what varies as fields. ERROR and PAGE do not alert by
    themselves: a state alerts on its transition, see `alert`."""
    log.log(_LEVEL[severity], sentence, extra={"fields": fields})


def alert(severity: Severity, sentence: str, **fields: Any) -> None:
    """One line that somebody must see. Call it on the transition into a bad state, not at
    each look at it."""
    _alert(severity, sentence, fields, None)


def _alert(
    severity: Severity, sentence: str, fields: dict[str, Any], error: BaseException | None
) -> None:
    count("alerts")
    if severity is Severity.PAGE:
        count("pages")
    log.log(_LEVEL[severity], sentence, extra={"fields": {**fields, "alert": True}})
    for listener in _listeners:
        listener.tell(severity, sentence, fields, error)


def report_failure(error: BaseException, sentence: str, **fields: Any) -> None:
    """The failure line of whatever ended by `error`: its severity decides level and alert.
    An unclassified exception is a bug and pages."""
    severity = error.severity if isinstance(error, VpayError) else Severity.PAGE
    told = {"error": describe(error), **fields}
    if severity.alerts:
        _alert(severity, sentence, told, error)
    else:
        say(severity, sentence, **told)


class JsonLines(logging.Formatter):
    """Renders a record as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = describe(record.exc_info[1])
        return json.dumps(line, default=str, ensure_ascii=False)


def log_as_json(level: int = logging.INFO) -> None:
    """Send every logger's lines to stderr as JSON, whatever had been set up before."""
    # Not sys.stderr: in a worker that is a pipe to its master, who reads none of it until all
    # its children have booted – just when a person wants to know what they wait for.
    handler = logging.StreamHandler(sys.__stderr__ or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
