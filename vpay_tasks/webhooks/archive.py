"""A merchant's own events, for catching up: listed in order, read one by one, as the bytes
that are stored and delivered. An event is listed once it is fanned out, or given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from vpay_tasks.errors import InvalidRequest, NotFound
from vpay_tasks.store import listing
from vpay_tasks.store.db import Database
from vpay_tasks.store.listing import Listed

PAGE: Final = 100
PAGE_MAX: Final = 1_000
"""Events of 256 KiB at the most: more would be a lot for one answer."""


@dataclass(frozen=True)
class Page:
    """Events in the order of the list. Go on with `after=` the last one's id; what is listed
    later stands later, so nothing is skipped."""

    events: list[Listed]
    more: bool


def list_events(
    db: Database, merchant_id: str, *, after: str | None = None, limit: int = PAGE
) -> Page:
    """The merchant's events behind the event `after`, oldest first. Raises InvalidRequest,
    NotFound for an `after` that is not in the list, Storage."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_MAX:
        raise InvalidRequest(f"limit: 1 to {PAGE_MAX}")
    with db.connection() as connection:
        place = 0 if after is None else listing.place_of(connection, merchant_id, after)
        if place is None:
            raise NotFound("no such event to go on from: begin at the front")
        found = listing.page_listed(connection, merchant_id, after=place, limit=limit + 1)
    return Page(found[:limit], more=len(found) > limit)


def read_event(db: Database, merchant_id: str, event_id: str) -> bytes:
    """The event's stored bytes. Raises NotFound, also for another merchant's: whether that
    one exists is not told. Raises Storage."""
    with db.connection() as connection:
        body = listing.listed_body(connection, merchant_id, event_id)
    if body is None:
        raise NotFound("no such event")
    return body
