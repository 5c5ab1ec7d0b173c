"""Charges as a person looks into them: lists of those that are not over, and all about one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.store import sql

SQL = sql.load(__name__)

CAP: Final = 10_000
"""Charges looked through for a list: some tens of milliseconds."""

ROWS: Final = 500
"""Of events, deliveries and attempts shown of one charge: more is no story any more."""


@dataclass(frozen=True)
class Line:
    """One charge of a list; seconds by the database's clock, `next_ask` None without a poll."""

    id: str
    rail: str
    state: str
    contradicted: bool
    amount: int
    currency: str
    age: float
    polls: int
    asked: float | None
    next_ask: float | None
    parked: str | None
    asking: bool


@dataclass(frozen=True)
class Lines:
    """The first of a list, and how many there are: `number` stops at CAP."""

    lines: tuple[Line, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class Charged:
    """A charge with its intent, and the database's clock at that look."""

    now: datetime
    id: str
    intent_id: str
    merchant_id: str
    intent_status: str
    intent_created_at: datetime
    intent_updated_at: datetime
    rail: str
    reference: str
    state: str
    amount: int
    currency: str
    payer: str | None
    failure_code: str | None
    failure_raw: str | None
    txn_id: str | None
    polls: int
    last_asked_at: datetime | None
    not_found_streak: int
    contradicted_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class Submit:
    sent_at: datetime
    answered_at: datetime | None
    answer: str | None
    code: str | None
    detail: str | None


@dataclass(frozen=True)
class Work:
    """A job of the charge: its poll, or a resubmit."""

    id: int
    kind: str
    run_at: datetime
    started_at: datetime | None
    parked_at: datetime | None
    dead_reason: str | None
    failures: int
    crashes: int
    last_error: str | None


@dataclass(frozen=True)
class Posting:
    posted_at: datetime
    kind: str
    amount: int
    debit: str
    credit: str


@dataclass(frozen=True)
class Told:
    """An event of the intent."""

    created_at: datetime
    id: str
    type: str
    fanout_state: str


@dataclass(frozen=True)
class Sent:
    """A delivery of such an event."""

    created_at: datetime
    id: str
    event_id: str
    endpoint_id: str
    state: str
    attempts: int
    next_attempt_at: datetime | None


@dataclass(frozen=True)
class Post:
    """An attempt of such a delivery."""

    begun_at: datetime
    delivery_id: str
    number: int
    status: int | None
    milliseconds: int
    counted: bool
    excerpt: str


@dataclass(frozen=True)
class Case:
    """All that is known of one charge."""

    charge: Charged
    submits: tuple[Submit, ...] = ()
    jobs: tuple[Work, ...] = ()
    postings: tuple[Posting, ...] = ()
    events: tuple[Told, ...] = ()
    deliveries: tuple[Sent, ...] = ()
    posts: tuple[Post, ...] = field(default=(), repr=False)

    @property
    def poll(self) -> Work | None:
        return next((job for job in self.jobs if job.kind == kinds.POLL_CHARGE.name), None)


def in_doubt(connection: sql.Connection, *, rows: int) -> Lines:
    """Charges that are unresolved or contradicted, the oldest first."""
    return _lines(sql.run(connection, SQL["in_doubt"], _bounds(rows)))


def live(connection: sql.Connection, *, rows: int) -> Lines:
    """Charges that are not over, the oldest first."""
    return _lines(sql.run(connection, SQL["live"], _bounds(rows)))


def find(connection: sql.Connection, name: str, *, rails: Sequence[str]) -> Case | None:
    """All about the charge that `name` names: its id, its intent's id, or the reference by which
    one of `rails` knows it."""
    charge_id = named(connection, name, rails=rails)
    charge = case_of(connection, charge_id) if charge_id is not None else None
    if charge is None:
        return None
    events = events_of(connection, charge.intent_id)
    deliveries = deliveries_of(connection, [event.id for event in events])
    return Case(
        charge,
        submits(connection, charge.id),
        jobs_of(connection, [kinds.poll_key(charge.id), kinds.resubmit_key(charge.id)]),
        postings(connection, charge.id),
        events,
        deliveries,
        attempts_of(connection, [delivery.id for delivery in deliveries]),
    )


def named(connection: sql.Connection, name: str, *, rails: Sequence[str]) -> str | None:
    rows = sql.run(connection, SQL["named"], {"name": name, "rails": list(rails)})
    return rows[0][0] if rows else None


def case_of(connection: sql.Connection, charge_id: str) -> Charged | None:
    rows = sql.run(connection, SQL["case_of"], {"charge_id": charge_id})
    return Charged(*rows[0]) if rows else None


def submits(connection: sql.Connection, charge_id: str) -> tuple[Submit, ...]:
    rows = sql.run(connection, SQL["submits"], {"charge_id": charge_id})
    return tuple(Submit(*row) for row in rows)


def jobs_of(connection: sql.Connection, keys: Sequence[str]) -> tuple[Work, ...]:
    return tuple(Work(*row) for row in sql.run(connection, SQL["jobs_of"], {"keys": list(keys)}))


def postings(connection: sql.Connection, charge_id: str) -> tuple[Posting, ...]:
    rows = sql.run(connection, SQL["postings"], {"charge_id": charge_id})
    return tuple(Posting(*row) for row in rows)


def events_of(connection: sql.Connection, intent_id: str) -> tuple[Told, ...]:
    rows = sql.run(connection, SQL["events_of"], {"intent_id": intent_id, "rows": ROWS})
    return tuple(Told(*row) for row in rows)


def deliveries_of(connection: sql.Connection, event_ids: Sequence[str]) -> tuple[Sent, ...]:
    params = {"event_ids": list(event_ids), "rows": ROWS}
    return tuple(Sent(*row) for row in sql.run(connection, SQL["deliveries_of"], params))


def attempts_of(connection: sql.Connection, delivery_ids: Sequence[str]) -> tuple[Post, ...]:
    params = {"delivery_ids": list(delivery_ids), "rows": ROWS}
    return tuple(Post(*row) for row in sql.run(connection, SQL["attempts_of"], params))


def _bounds(rows: int) -> dict[str, object]:
    return {"cap": CAP, "rows": rows, "prefix": kinds.poll_key("")}


def _lines(rows: Sequence[sql.Row]) -> Lines:
    if not rows:
        return Lines()
    return Lines(tuple(Line(*row[:-1]) for row in rows), rows[0][-1])
