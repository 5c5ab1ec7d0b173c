"""Deliveries sent again: one, by filter, or all that an endpoint missed.

A replay makes deliveries pending; the workers send them as they send any other: under the
endpoint's cap, its pause and its circuit. The same event id and bytes go out, freshly signed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from vpay_tasks.core import ids
from vpay_tasks.core.events import EventType
from vpay_tasks.store import clock, replays
from vpay_tasks.store.db import WALK_PLANS, Connection, Database, connect
from vpay_tasks.store.replays import Filter, Mark, Replayed
from vpay_tasks.store.strays import FRONT
from vpay_tasks.webhooks.endpoints import Endpoint

PAGE: Final = 100
"""Deliveries a transaction. More would hold their jobs from being claimed for longer."""
MISSED: Final = ("exhausted", "gone")
"""What a filter without a state means. A poisoned one is poisoned again until its bytes are
mended, so it is to be named."""


def matching(db: Database, wanted: Filter, *, page: int = PAGE) -> Iterator[list[str]]:
    """The ids of the deliveries that match and were made before it begins, page by page. They
    may be replayed between two pages: what was passed is not come back to."""
    after = FRONT
    with _walking(db) as connection:
        until = clock.now(connection)
        while True:
            found = replays.page_matching(connection, wanted, after, until=until, page=page)
            if found:
                yield [place.id for place in found]
                after = found[-1]
            if len(found) < page:
                return


def again(db: Database, delivery_ids: Sequence[str]) -> Replayed:
    """Send these once more, from the ladder's beginning. One that may be in flight just now
    is left alone. At most PAGE ids make a short transaction. Raises Storage."""
    with db.transaction() as tx:
        return replays.replay(tx, delivery_ids)


def given_up(endpoint: Endpoint, *, since: datetime) -> Filter:
    """What was made for the endpoint since then and never arrived."""
    return Filter(endpoint.merchant_id, endpoint.id, states=MISSED, since=since)


def never_made(
    db: Database, endpoint: Endpoint, *, since: datetime, page: int = PAGE
) -> Iterator[list[str]]:
    """The ids of events since then that the endpoint wants now and got no delivery of, page by
    page: they were fanned out before it was there, or before it named their type."""
    types = [kind.value for kind in EventType if endpoint.wants(kind.value)]
    after: Mark | None = Mark(since)
    with _walking(db) as connection:
        while after is not None:
            found = replays.page_missed(connection, endpoint.merchant_id, endpoint.id, types, after)
            yield from (found.ids[at : at + page] for at in range(0, len(found.ids), page))
            after = found.end


def make(db: Database, endpoint: Endpoint, event_ids: Sequence[str]) -> int:
    """Deliveries of these events to the endpoint; how many there were to make."""
    new = [ids.new_id("del", os.urandom(ids.RAW_BYTES)) for _ in event_ids]
    with db.transaction() as tx:
        return replays.make_missed(tx, endpoint.merchant_id, endpoint.id, event_ids, new)


def narrowed(wanted: Filter) -> Filter:
    """`wanted`, with what was missed for a filter that names no state."""
    return dataclasses.replace(wanted, states=MISSED) if wanted.states is None else wanted


def _walking(db: Database) -> Connection:
    """A line of its own for a walk (see WALK_PLANS): closed at the end of its block."""
    return connect(db.url, application=f"{db.application} walk", plans=WALK_PLANS)
