"""The outbox: events as they are appended, and the statements that fan them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import psycopg

from vpay_tasks.core import kinds
from vpay_tasks.errors import AmbiguousCommit, Storage, VpayError
from vpay_tasks.store import sql

SQL = sql.load(__name__)

PAGE: Final = 100
"""Events per pass. More holds the fan-out's lock for longer in one go; fewer pays a commit
for too little."""
FAILURES_MAX: Final = 5
"""At the 5 s interval a poisoned event is given up after 20 s. Lower: a deploy that is being
mended costs events; higher: the rows at the head of the page are tried for longer."""


@dataclass(frozen=True)
class PendingEvent:
    """What the fan-out must know of an event to find its endpoints."""

    id: str
    merchant_id: str
    type: str


@dataclass(frozen=True)
class Wanted:
    """One delivery to be made, if the flip of its event wins."""

    event_id: str
    endpoint_id: str
    delivery_id: str


@dataclass(frozen=True)
class Flipped:
    """What a flip moved; 0 events means that every swap was lost."""

    events: int
    deliveries: int


def append(
    tx: sql.Connection,
    *,
    event_id: str,
    merchant_id: str,
    type: str,  # noqa: A002 - the contract's word
    object_id: str,
    customer_id: str | None,
    livemode: bool,
    body: bytes,
) -> None:
    """Write an event in the transaction of the transition it reports. `body` is sent as it
    is, byte by byte. Raises Internal for a type that is not documented, Conflict for an id
    that stands."""
    sql.run(
        tx,
        SQL["append"],
        {
            "event_id": event_id,
            "merchant_id": merchant_id,
            "type": type,
            "object_id": object_id,
            "customer_id": customer_id,
            "livemode": livemode,
            "body": body,
        },
    )
    if (hints := getattr(tx, "hints", None)) is not None and kinds.FAN_OUT_EVENTS.singleton:
        hints.add(kinds.FAN_OUT_EVENTS.singleton)


def take_turn(tx: sql.Connection) -> None:
    """Wait until no other transaction fans out; held to the end of this one."""
    sql.run(tx, SQL["take_turn"])


def page(tx: sql.Connection) -> list[PendingEvent]:
    """The oldest pending events, locked; those that others hold are passed over."""
    return [PendingEvent(*row) for row in sql.run(tx, SQL["page"], {"page": PAGE})]


def flip(tx: sql.Connection, event_ids: Sequence[str], wanted: Sequence[Wanted]) -> Flipped:
    """Move the events that are still pending to done, with a delivery and a job for each of
    `wanted` whose event was moved. Call `take_turn` first."""
    kind = kinds.DELIVER_WEBHOOK
    ((events, deliveries),) = sql.run(
        tx,
        SQL["flip"],
        {
            "event_ids": list(event_ids),
            "for_events": [one.event_id for one in wanted],
            "endpoint_ids": [one.endpoint_id for one in wanted],
            "delivery_ids": [one.delivery_id for one in wanted],
            "queue": kind.queue,
            "kind": kind.name,
            "priority": kind.priority,
            "key_prefix": kinds.webhook_key(""),
        },
    )
    if deliveries and (hints := getattr(tx, "hints", None)) is not None:
        hints.add("")
    return Flipped(events, deliveries)


def count_failure(tx: sql.Connection, event_id: str) -> bool:
    """Count a failed fan-out of a pending event. True when this one moved it to `failed`.
    Call `take_turn` first."""
    params = {"event_id": event_id, "limit": FAILURES_MAX}
    rows = sql.run(tx, SQL["count_failure"], params)
    return bool(rows and rows[0][0])


def rearm(tx: sql.Connection, event_id: str) -> bool:
    """Put an event that was given up back among the pending. False: it was not given up."""
    rows = sql.run(tx, SQL["rearm"], {"event_id": event_id})
    if (
        rows
        and (hints := getattr(tx, "hints", None)) is not None
        and kinds.FAN_OUT_EVENTS.singleton
    ):
        hints.add(kinds.FAN_OUT_EVENTS.singleton)
    return bool(rows)


def page_of_customer(tx: sql.Connection, customer_id: str, *, page: int) -> dict[int, bytes]:
    """The oldest event bodies of a customer that no erasure has seen, by seq, locked."""
    params = {"customer_id": customer_id, "page": page}
    return dict(sql.run(tx, SQL["page_of_customer"], params))


def redact(tx: sql.Connection, bodies: Mapping[int, bytes]) -> int:
    """Store these bodies in place of those of `page_of_customer`; how many."""
    params = {"seqs": list(bodies), "bodies": list(bodies.values())}
    return len(sql.run(tx, SQL["redact"], params))


def page_behind(
    connection: sql.Connection, *, after: int, keep: float, page: int
) -> list[tuple[int, bool]]:
    """A page of events behind the seq `after`: seq, and whether it is older than `keep`
    seconds."""
    params = {"after": after, "keep": keep, "page": page}
    return [(seq, old) for seq, old in sql.run(connection, SQL["page_behind"], params)]


def sweep_old(connection: sql.Connection, seqs: Sequence[int]) -> int:
    """Delete, of these, the events that no delivery waits to send, with their deliveries and
    the log of their attempts; how many."""
    params = {"seqs": list(seqs), "page": len(seqs)}
    return len(sql.run(connection, SQL["sweep_old"], params))


class Blame(Enum):
    """Whose doing it is that an event could not be fanned out."""

    NOBODY = "nobody"
    """It passes by itself: a lock, a deadlock, a lost connection, a disk."""
    INSTALLATION = "installation"
    """A missing right, table or function, a standby, a statement that is cut off: hardly the
    event's doing, unless a neighbour gets its deliveries."""
    EVENT = "event"


_PASSES: Final = ("08", "40", "53", "57P", "58", "55P03")
_INSTALLATION: Final = ("0A", "25", "28", "3D", "3F", "42", "55", "57", "XX")
"""Beginnings of SQLSTATEs. What neither names is the event's: a trigger may raise any."""


def blame(error: VpayError) -> Blame:
    """Whom a failed `page` or `flip` is to be laid to."""
    cause = error.__cause__
    state = (cause.sqlstate or "") if isinstance(cause, psycopg.Error) else ""
    if isinstance(error, AmbiguousCommit) or state.startswith(_PASSES):
        return Blame.NOBODY
    if sql.is_bad_data(error):
        return Blame.EVENT
    if not state:  # the client's own: no connection, or a statement that it can't send
        return Blame.NOBODY if isinstance(error, Storage) else Blame.INSTALLATION
    return Blame.INSTALLATION if state.startswith(_INSTALLATION) else Blame.EVENT
