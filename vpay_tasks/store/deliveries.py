"""Deliveries of events to endpoints: read, stamped, recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from vpay_tasks.core import kinds
from vpay_tasks.store import sql

SQL = sql.load(__name__)

State = Literal["pending", "delivered", "exhausted", "gone", "poisoned"]
"""All but `pending` are terminal: only a replay leaves them, and a trigger says so too."""


@dataclass(frozen=True)
class Delivery:
    """A delivery and the bytes of its event, as of one moment of the database's clock."""

    id: str
    event_id: str
    merchant_id: str
    endpoint_id: str
    state: State
    attempts: int
    """Recorded so far; the next one is this plus one. Only ever grows."""
    ladder_from: int
    """Those of them that stood when its ladder began anew: 0 without a replay."""
    wait: float
    """Seconds until it may be attempted; 0 if it may now."""
    held: bool
    """Its endpoint is paused, or its circuit is open."""
    digest: bytes | None
    digest_rev: int | None
    body: bytes = field(repr=False)
    body_rev: int
    now: float
    """Unix seconds of the database's clock at the read."""


@dataclass(frozen=True)
class Attempt:
    """One attempt as the log keeps it. `status` None: no answer, `excerpt` says why."""

    number: int
    begun: float
    """Unix seconds by the database's clock."""
    seconds: float
    status: int | None
    excerpt: str
    address: str | None = None
    config_hash: str | None = None
    key_ids: Sequence[str] = ()
    digest: bytes | None = None
    ladder_from: int = 0
    """The delivery's, as it was read before the attempt."""

    @property
    def posted(self) -> bool:
        """Whether the receiver was called, or at least looked for: what was never signed
        says nothing about it."""
        return self.digest is not None


@dataclass(frozen=True)
class Recorded:
    """What a record changed beside the log."""

    counted: bool
    """False: it came too late to count, and only the log has it."""
    closed: bool
    """It was the answer that closed the endpoint's circuit."""


def read(connection: sql.Connection, delivery_id: str) -> Delivery | None:
    """The delivery with its event's bytes; None if there is no such row."""
    params = {"delivery_id": delivery_id, "queue": kinds.DELIVER_WEBHOOK.queue}
    rows = sql.run(connection, SQL["read"], params)
    return Delivery(delivery_id, *rows[0]) if rows else None


def stamp(connection: sql.Connection, delivery: Delivery, digest: bytes) -> bool:
    """Write down what is about to be signed. False: another run moved the delivery since
    `delivery` was read; send nothing."""
    params = {
        "delivery_id": delivery.id,
        "digest": digest,
        "revision": delivery.body_rev,
        "attempts": delivery.attempts,
    }
    return bool(sql.run(connection, SQL["stamp"], params))


def record(
    connection: sql.Connection,
    delivery_id: str,
    attempt: Attempt,
    *,
    state: State,
    delay: float | None,
) -> Recorded:
    """Log the attempt and move the delivery to `state`; `delay` is the seconds to the next
    attempt, for `pending`."""
    rows = sql.run(
        connection,
        SQL["record"],
        {
            "delivery_id": delivery_id,
            "queue": kinds.DELIVER_WEBHOOK.queue,
            "state": state,
            "delay": delay if state == "pending" else None,
            "attempt": attempt.number,
            "ladder_from": attempt.ladder_from,
            "begun": attempt.begun,
            "duration_ms": round(attempt.seconds * 1_000),
            "status": attempt.status,
            "excerpt": attempt.excerpt,
            "address": attempt.address,
            "config_hash": attempt.config_hash,
            "key_ids": list(attempt.key_ids),
            "digest": attempt.digest,
        },
    )
    return Recorded(*rows[0])


def poison(connection: sql.Connection, delivery: Delivery, excerpt: str) -> bool:
    """End the delivery because its event's bytes changed under one revision. False: another
    run moved it since `delivery` was read."""
    params = {"delivery_id": delivery.id, "attempts": delivery.attempts, "excerpt": excerpt}
    return bool(sql.run(connection, SQL["poison"], params))


def sweep_words(connection: sql.Connection, seqs: Sequence[int], *, keep: float) -> None:
    """Forget what receivers answered more than `keep` seconds ago to these events."""
    params = {"seqs": list(seqs), "keep": keep, "page": len(seqs)}
    sql.run(connection, SQL["sweep_words"], params)
