"""The backstop's looks: work that should be there and is not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.store import sql

SQL = sql.load(__name__)

PAGE: Final = 500
"""Charges looked at in one statement: some milliseconds. Higher: a page holds its locks longer."""

NAMES: Final = 20
"""Named in an alert; more is a list to be asked for, no line to be read."""


@dataclass(frozen=True)
class Cursor:
    """The last charge of a page. Its instant is Postgres's own, and goes back to it as it is."""

    updated_at: datetime
    id: str


START: Final = Cursor(datetime.fromtimestamp(0, UTC), "")


@dataclass(frozen=True)
class LivePage:
    """What one page held: its end, how many charges, and those that got a poll."""

    end: Cursor
    looked_at: int = 0
    enqueued: tuple[str, ...] = ()

    @property
    def full(self) -> bool:
        return self.looked_at >= PAGE


@dataclass(frozen=True)
class Parked:
    """Live charges whose poll is parked: all of them counted, the longest untouched named."""

    number: int
    names: tuple[str, ...]


def scan_live(connection: sql.Connection, after: Cursor, *, untouched: float) -> LivePage:
    """Give a poll to each live charge of the page behind `after` that has none and that
    nothing has touched for `untouched` seconds. Safe to repeat."""
    rows = sql.run(
        connection,
        SQL["scan_live"],
        {
            "after_at": after.updated_at,
            "after_id": after.id,
            "untouched": untouched,
            "page": PAGE,
            "prefix": kinds.poll_key(""),
            "queue": kinds.POLL_CHARGE.queue,
            "kind": kinds.POLL_CHARGE.name,
            "priority": kinds.POLL_CHARGE.priority,
        },
    )
    if not rows:
        return LivePage(after)
    ((updated_at, id_, looked_at, enqueued),) = rows
    return LivePage(Cursor(updated_at, id_), looked_at, tuple(enqueued))


def scan_parked(connection: sql.Connection, *, untouched: float) -> Parked:
    """Live charges, untouched for `untouched` seconds, whose poll somebody has parked."""
    params = {
        "untouched": untouched,
        "prefix": kinds.poll_key(""),
        "queue": kinds.POLL_CHARGE.queue,
        "names": NAMES,
    }
    ((number, names),) = sql.run(connection, SQL["scan_parked"], params)
    return Parked(number, tuple(names))
