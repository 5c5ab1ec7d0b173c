"""From events to deliveries: a page at a time, and event by event when a page fails."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from vpay_tasks.core import ids
from vpay_tasks.errors import Severity, VpayError, describe
from vpay_tasks.store import events
from vpay_tasks.store.db import Database
from vpay_tasks.store.events import Blame, PendingEvent, Wanted
from vpay_tasks.telemetry import alert, say
from vpay_tasks.webhooks.endpoints import Endpoints


@dataclass(frozen=True)
class Pass:
    """What one pass found and moved."""

    seen: int = 0
    done: int = 0
    failed: int = 0
    """Given up by this pass."""
    deliveries: int = 0

    @property
    def again_now(self) -> bool:
        """A full page that moved has more behind it; one that didn't would only spin."""
        return self.seen == events.PAGE and self.done + self.failed > 0


def drain(db: Database, endpoints: Endpoints) -> Pass:
    """Fan out one page of pending events.

    Raises Storage for what passes by itself (a lock, a deadlock, a lost connection, a full
    disk): then nothing is counted against any event. Whatever else refuses one event is
    counted against it, its neighbours go on, and the fifth time it is given up with an alert.
    What looks like the installation's fault (a missing right) is raised, and counted against
    nobody, as long as no neighbour gets its deliveries.
    """
    page: list[PendingEvent] = []
    try:
        with db.transaction() as tx:
            events.take_turn(tx)
            page = events.page(tx)
            flipped = events.flip(tx, [event.id for event in page], _wanted(page, endpoints))
        return Pass(len(page), flipped.events, 0, flipped.deliveries)
    except VpayError as error:
        if not page or events.blame(error) is Blame.NOBODY:
            raise
        say(
            Severity.WARN,
            "a page of events could not be fanned out at once; going event by event",
            action="fan_out_page",
            events=len(page),
            error=describe(error),
        )
    return _one_by_one(db, endpoints, page)


def _one_by_one(db: Database, endpoints: Endpoints, page: list[PendingEvent]) -> Pass:
    done = failed = deliveries = 0
    doubtful: list[tuple[PendingEvent, VpayError]] = []
    for event in page:
        try:
            with db.transaction() as tx:
                events.take_turn(tx)
                flipped = events.flip(tx, [event.id], _wanted([event], endpoints))
        except VpayError as error:
            match events.blame(error):
                case Blame.NOBODY:
                    raise
                case Blame.INSTALLATION:
                    doubtful.append((event, error))
                case Blame.EVENT:
                    failed += _count(db, event, error)
        else:
            done += flipped.events  # none: another pass was first, which is no failure
            deliveries += flipped.deliveries
    # An event that nobody wants touches less than its neighbours: it clears no installation.
    if doubtful and not deliveries:
        raise doubtful[0][1]
    failed += sum(_count(db, event, error) for event, error in doubtful)
    return Pass(len(page), done, failed, deliveries)


def _count(db: Database, event: PendingEvent, error: VpayError) -> bool:
    with db.transaction() as tx:
        events.take_turn(tx)
        given_up = events.count_failure(tx, event.id)
    tell = alert if given_up else say
    tell(
        Severity.ERROR if given_up else Severity.WARN,
        "an event could not be fanned out and is given up"
        if given_up
        else "an event could not be fanned out; it is tried again",
        action="fan_out_event",
        event_id=event.id,
        merchant=event.merchant_id,
        type=event.type,
        error=describe(error),
    )
    return given_up


def _wanted(page: Iterable[PendingEvent], endpoints: Endpoints) -> list[Wanted]:
    return [
        Wanted(event.id, endpoint.id, ids.new_id("del", os.urandom(ids.RAW_BYTES)))
        for event in page
        for endpoint in endpoints.for_event(event.merchant_id, event.type)
    ]
