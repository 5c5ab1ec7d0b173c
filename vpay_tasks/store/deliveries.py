"""Deliveries of events to endpoints: read, stamped, recorded; and their lanes' exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from vpay_tasks.core import kinds
from vpay_tasks.store import sql

SQL = sql.load(__name__)

State = Literal["pending", "delivered", "exhausted", "gone", "poisoned"]
"""All but `pending` are terminal: nothing leaves them, and a trigger says so too."""


@dataclass(frozen=True)
class Delivery:
    """A delivery and the bytes of its event, as of one moment of the database's clock."""

    id: str
    event_id: str
    merchant_id: str
    endpoint_id: str
    state: State
    attempts: int
    """Recorded so far; the next one is this plus one."""
    wait: float
    """Seconds until it may be attempted; 0 if it may now."""
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


class Pause(Enum):
    """What became of the wish to pause an endpoint."""

    PAUSED = "paused"
    """By this very call: the transition, to be alerted."""
    ALREADY = "already"
    RESUMED_SINCE = "resumed_since"
    """Somebody resumed it after the attempt had begun; it stays resumed."""


def read(connection: sql.Connection, delivery_id: str) -> Delivery | None:
    """The delivery with its event's bytes; None if there is no such row."""
    rows = sql.run(connection, SQL["read"], {"delivery_id": delivery_id})
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
) -> bool:
    """Log the attempt and move the delivery to `state`; `delay` is the seconds to the next
    attempt, for `pending`. False: it came too late to count, and only the log has it."""
    rows = sql.run(
        connection,
        SQL["record"],
        {
            "delivery_id": delivery_id,
            "state": state,
            "delay": delay if state == "pending" else None,
            "attempt": attempt.number,
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
    return bool(rows)


def poison(connection: sql.Connection, delivery: Delivery, excerpt: str) -> bool:
    """End the delivery because its event's bytes changed under one revision. False: another
    run moved it since `delivery` was read."""
    params = {"delivery_id": delivery.id, "attempts": delivery.attempts, "excerpt": excerpt}
    return bool(sql.run(connection, SQL["poison"], params))


def pause_endpoint(
    tx: sql.Connection,
    merchant_id: str,
    endpoint_id: str,
    *,
    begun: float,
    changed_by: str,
    reason: str,
) -> Pause:
    """Cap the endpoint's lane at nothing, unless it was resumed after `begun` (Unix seconds
    of the database's clock). In one transaction with the record that it goes with."""
    where = {
        "queue": kinds.DELIVER_WEBHOOK.queue,
        "lane": kinds.endpoint_lane(merchant_id, endpoint_id),
    }
    wish = {**where, "begun": begun, "changed_by": changed_by, "reason": reason}
    if sql.run(tx, SQL["pause_endpoint"], wish):
        return Pause.PAUSED
    return Pause.ALREADY if endpoint_paused(tx, merchant_id, endpoint_id) else Pause.RESUMED_SINCE


def endpoint_paused(connection: sql.Connection, merchant_id: str, endpoint_id: str) -> bool:
    """Whether the endpoint's lane is paused."""
    params = {
        "queue": kinds.DELIVER_WEBHOOK.queue,
        "lane": kinds.endpoint_lane(merchant_id, endpoint_id),
    }
    rows = sql.run(connection, SQL["endpoint_paused"], params)
    return bool(rows and rows[0][0])


def set_caps(tx: sql.Connection, caps: Mapping[str, int]) -> None:
    """Make the lanes' caps those of `caps` (lane → cap, see Endpoints.caps); a lane that is
    not named falls back to its queue's default. Pauses and circuits stay as they are."""
    lanes = sorted(caps)
    params = {
        "queue": kinds.DELIVER_WEBHOOK.queue,
        "lanes": lanes,
        "caps": [caps[lane] for lane in lanes],
    }
    sql.run(tx, SQL["set_caps"], params)
