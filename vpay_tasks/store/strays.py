"""Pending deliveries that nobody will attempt: their job is gone, or parked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.store import sql

SQL = sql.load(__name__)

PAGE: Final = 500
"""Rows a statement: some milliseconds. More holds a snapshot for longer, fewer asks more."""


@dataclass(frozen=True)
class Place:
    """A row's place in the walk."""

    merchant_id: str = ""
    endpoint_id: str = ""
    created_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    id: str = ""


FRONT: Final = Place()


@dataclass(frozen=True)
class Page:
    """What one page found."""

    strays: list[Place]
    parked: list[str]
    """Ids of those whose job is parked."""
    end: Place | None
    """Where the next page begins; None: there is none."""


def scan_pending(connection: sql.Connection, after: Place, *, older: float) -> Page:
    """The page behind `after`. One that was never attempted is a stray once it is `older`
    seconds old."""
    rows = sql.run(
        connection,
        SQL["scan_pending"],
        {
            "merchant_id": after.merchant_id,
            "endpoint_id": after.endpoint_id,
            "created_at": after.created_at,
            "id": after.id,
            "older": older,
            "page": PAGE,
            "key_prefix": kinds.webhook_key(""),
        },
    )
    found = [(Place(*row[:4]), *row[4:]) for row in rows]
    return Page(
        strays=[place for place, stray, _, _ in found if stray],
        parked=[place.id for place, _, parked, _ in found if parked],
        end=found[-1][0] if found and found[-1][3] == PAGE else None,
    )
