"""Deliveries as an operator sees them: listed, shown, sent again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.store import sql
from vpay_tasks.store.strays import FRONT, Place

SQL = sql.load(__name__)

ATTEMPTS_SHOWN: Final = 200
"""Of one delivery's log: 25 whole ladders."""
WALKED: Final = 1_000
"""Events a statement of the walk for missed ones: some milliseconds. More holds a snapshot for
longer, fewer asks more."""


@dataclass(frozen=True)
class Filter:
    """Which deliveries; None leaves all."""

    merchant_id: str | None = None
    endpoint_id: str | None = None
    event_id: str | None = None
    states: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    since: datetime | None = None
    """Made at or after this."""


@dataclass(frozen=True)
class Line:
    """A delivery in a list. Ages and waits are seconds by the database's clock."""

    id: str
    event_id: str
    type: str
    merchant_id: str
    endpoint_id: str
    state: str
    attempts: int
    replays: int
    last_status: int | None
    age: float
    wait: float | None


@dataclass(frozen=True)
class Facts:
    """A delivery by itself. `job` None: it has none, which is right once it has ended."""

    id: str
    event_id: str
    type: str
    merchant_id: str
    endpoint_id: str
    state: str
    attempts: int
    replays: int
    created_at: datetime
    next_attempt_at: datetime | None
    ended_at: datetime | None
    digest: str | None
    digest_rev: int | None
    body_rev: int
    job: str | None


@dataclass(frozen=True)
class Logged:
    """An attempt of the log."""

    attempt: int
    begun_at: datetime
    duration_ms: int
    status: int | None
    counted: bool
    address: str | None
    key_ids: list[str]
    digest: str | None
    next_attempt_at: datetime | None
    excerpt: str


@dataclass(frozen=True)
class Mark:
    """An event's place in the walk along its merchant's."""

    created_at: datetime
    seq: int = 0
    """0: in front of all that were made in that instant."""


@dataclass(frozen=True)
class Missed:
    """What one page of the walk found."""

    ids: list[str]
    """Events that were fanned out without the endpoint, oldest first."""
    end: Mark | None
    """Where the next page begins; None: there is none."""


@dataclass(frozen=True)
class Replayed:
    """`moved` are pending anew; `busy` were left alone, since an attempt may be in flight."""

    moved: int = 0
    busy: int = 0


def newest(connection: sql.Connection, wanted: Filter, *, limit: int) -> list[Line]:
    """Up to `limit` deliveries, the newest of each endpoint first."""
    params = {**_given(wanted), "limit": limit}
    return [Line(*row) for row in sql.run(connection, SQL["newest"], params)]


def page_matching(
    connection: sql.Connection,
    wanted: Filter,
    after: Place = FRONT,
    *,
    until: datetime,
    page: int,
) -> list[Place]:
    """The page of matching deliveries made `until` then, behind `after`, oldest first. On a
    connection with WALK_PLANS, for the reason of page_missed."""
    params = {
        **_given(wanted),
        "until": until,
        "after_merchant": after.merchant_id,
        "after_endpoint": after.endpoint_id,
        "after_created": after.created_at,
        "after_id": after.id,
        "page": page,
    }
    return [Place(*row) for row in sql.run(connection, SQL["page_matching"], params)]


def page_missed(
    connection: sql.Connection,
    merchant_id: str,
    endpoint_id: str,
    types: Sequence[str],
    after: Mark,
) -> Missed:
    """Which of the WALKED events of the merchant behind `after` have no delivery to the
    endpoint. On a connection with WALK_PLANS: by the statistics of an empty table the page
    would read and sort all that the merchant has."""
    params = {
        "merchant_id": merchant_id,
        "endpoint_id": endpoint_id,
        "types": list(types),
        "after_created": after.created_at,
        "after_seq": after.seq,
        "page": WALKED,
    }
    found = sql.run(connection, SQL["page_missed"], params)
    return Missed(
        ids=[id_ for _, _, id_, missed, _ in found if missed],
        end=Mark(*found[-1][:2]) if found and found[-1][4] == WALKED else None,
    )


def make_missed(
    tx: sql.Connection,
    merchant_id: str,
    endpoint_id: str,
    event_ids: Sequence[str],
    delivery_ids: Sequence[str],
) -> int:
    """Make deliveries of these events to the endpoint, with their jobs; how many. Those that
    stand by now are left."""
    params = {
        **_job(),
        "merchant_id": merchant_id,
        "endpoint_id": endpoint_id,
        "event_ids": list(event_ids),
        "delivery_ids": list(delivery_ids),
    }
    ((made,),) = sql.run(tx, SQL["make_missed"], params)
    _hint(tx, made)
    return int(made)


def replay(tx: sql.Connection, delivery_ids: Sequence[str]) -> Replayed:
    """Make these deliveries pending, due now, at the beginning of the ladder, whatever state
    they are in. Their event, its bytes and their log stay."""
    params = {**_job(), "ids": list(delivery_ids)}
    (row,) = sql.run(tx, SQL["replay"], params)
    replayed = Replayed(*row)
    _hint(tx, replayed.moved)
    return replayed


def facts(connection: sql.Connection, delivery_id: str) -> Facts | None:
    """The delivery; None if there is none."""
    params = {"delivery_id": delivery_id, "key_prefix": kinds.webhook_key("")}
    rows = sql.run(connection, SQL["facts"], params)
    return Facts(*rows[0]) if rows else None


def attempts_of(connection: sql.Connection, delivery_id: str) -> list[Logged]:
    """Its log, oldest first."""
    params = {"delivery_id": delivery_id, "limit": ATTEMPTS_SHOWN}
    return [Logged(*row) for row in sql.run(connection, SQL["attempts_of"], params)]


def _given(wanted: Filter) -> dict[str, object]:
    return {
        "merchant_id": wanted.merchant_id,
        "endpoint_id": wanted.endpoint_id,
        "event_id": wanted.event_id,
        "states": list(wanted.states) if wanted.states is not None else None,
        "types": list(wanted.types) if wanted.types is not None else None,
        "since": wanted.since,
    }


def _job() -> dict[str, object]:
    kind = kinds.DELIVER_WEBHOOK
    return {
        "queue": kind.queue,
        "kind": kind.name,
        "priority": kind.priority,
        "key_prefix": kinds.webhook_key(""),
    }


def _hint(tx: sql.Connection, made: int) -> None:
    if made and (hints := getattr(tx, "hints", None)) is not None:
        hints.add("")
