"""Claiming: under the queue's lock, within the fleet's room, a fresh token per message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from vpay_tasks.store import sql
from vpay_tasks.store.db import Connection

SQL = sql.load(__name__)

LANES_PER_WALK: Final = 200
"""Lanes looked at by one claim. More: a claim among thousands of saturated lanes holds the
queue's lock for long; fewer: a free lane behind them waits for more claims."""

LANE_CAPS: Final = {"webhooks": 4}
"""Rows of one lane that may be leased at once, by queue; 1 elsewhere: a lane is a flight."""


@dataclass(frozen=True)
class Due:
    """What one queue has to claim."""

    queue: str
    ready: bool
    laned: bool
    waiting: bool


@dataclass(frozen=True)
class Claimed:
    """One message's worth of rows, and the token that lets it be started."""

    lease: UUID
    ids: list[int]


@dataclass(frozen=True)
class Claim:
    """What one claim took. `room` is the messages it had room for, `threads` the live ones of
    the queue, `next_lane` where its next walk begins ("": at the front)."""

    messages: list[Claimed]
    room: int
    threads: int
    next_lane: str


def due_queues(connection: Connection, queues: list[str]) -> list[Due]:
    """The queues with anything to claim now, in the order given."""
    found = [Due(*row) for row in sql.run(connection, SQL["due_queues"], {"queues": queues})]
    by_name = {due.queue: due for due in found}
    asked = [by_name[queue] for queue in queues if queue in by_name]
    return [due for due in asked if due.ready or due.laned or due.waiting]


def lock_queue(queue: str) -> sql.Bound:
    """Wait for this queue's turn; held until the transaction ends. To be sent first."""
    return sql.Bound(SQL["lock_queue"], {"queue": queue})


def stage(queue: str) -> sql.Bound:
    """Mark up to 500 rows of lanes that have come due. To be sent before the claim."""
    return sql.Bound(SQL["stage"], {"queue": queue})


def claim(
    connection: Connection,
    due: Due,
    *,
    dispatcher: str,
    claim_lease: float,
    window: float,
    batches: dict[str, int],
    lanes_first: bool,
    cursor: str,
) -> Claim:
    """Lock, stage, claim, commit: one transaction, one round trip.

    `batches` names the kinds that travel together and how many of them at the most; a kind
    it doesn't name travels alone. Raises Storage; then nothing was claimed, or – the commit
    was ambiguous – what was claimed comes back when its lease ends.
    """
    # The blocking kind of lock: a try-lock that answered false would not stop the claim
    # that is already on its way behind it.
    calls = [lock_queue(due.queue), *([stage(due.queue)] if due.waiting else [])]
    params = {
        "queue": due.queue,
        "dispatcher": dispatcher,
        "claim_lease": claim_lease,
        "window": window,
        "kinds": list(batches),
        "batches": list(batches.values()),
        "lane_cap": LANE_CAPS.get(due.queue, 1),
        "lanes_max": LANES_PER_WALK,
        "lanes_first": lanes_first,
        "laned": due.laned or due.waiting,
        "cursor": cursor,
    }
    rows = sql.run_together(connection, [*calls, sql.Bound(SQL["claim"], params)])
    messages = [Claimed(lease, ids) for lease, ids, *_ in rows if lease is not None]
    _, _, room, threads, next_lane = rows[0]
    return Claim(messages, room, threads, next_lane or "")
