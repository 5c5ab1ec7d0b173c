"""What no rule foresaw: a pending delivery whose job is gone gets another one.

A delivery and its job are made in one transaction, and a job ends only with its delivery, so
there should be none: a row that a person deleted, a bug, a restore of half a database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.errors import Severity
from vpay_tasks.store import jobs, strays
from vpay_tasks.store.db import CLAIM_PLANS, Database, connect
from vpay_tasks.store.strays import FRONT, Place
from vpay_tasks.telemetry import alert, say

NEVER_ATTEMPTED_S: Final = 60.0
"""Two run leases. Lower: a delivery is looked at that was made just now."""
NAMED_MAX: Final = 20
"""Parked deliveries named in the one line about them."""


@dataclass
class Found:
    """What one pass over all that is pending found."""

    queued: int = 0
    parked: int = 0
    named: list[str] = field(default_factory=list)
    whole: bool = True
    """False: it was stopped before the end."""


def scan(db: Database, *, go_on: Callable[[], bool]) -> Found:
    """Enqueue again whatever is pending without a job; tell what is parked. `go_on` is asked
    between two pages. Raises Storage: what was enqueued until then stays."""
    found = Found()
    after: Place | None = FRONT
    # A line of its own: by the statistics of an empty table a page would read all of it.
    line = connect(db.url, application=f"{db.application} scan", plans=CLAIM_PLANS)
    with line as connection:
        while after is not None:
            if not go_on():
                found.whole = False
                break
            page = strays.scan_pending(connection, after, older=NEVER_ATTEMPTED_S)
            for stray in page.strays:
                found.queued += _enqueue(db, stray)
            found.parked += len(page.parked)
            found.named += page.parked[: NAMED_MAX - len(found.named)]
            after = page.end
    _tell(found)
    return found


def _enqueue(db: Database, stray: Place) -> bool:
    with db.transaction() as tx:
        enqueued = jobs.enqueue(
            tx,
            kinds.DELIVER_WEBHOOK,
            {"delivery_id": stray.id},
            dedupe_key=kinds.webhook_key(stray.id),
            lane=kinds.endpoint_lane(stray.merchant_id, stray.endpoint_id),
        )
    return enqueued.inserted


def _tell(found: Found) -> None:
    if found.queued:
        alert(
            Severity.ERROR,
            "pending deliveries had lost their jobs and have new ones",
            action="deliveries_requeued",
            deliveries=found.queued,
        )
    if found.parked:
        say(
            Severity.WARN,
            "pending deliveries wait for their parked jobs",
            action="deliveries_parked",
            deliveries=found.parked,
            named=found.named,
        )
    if not found.whole:
        alert(
            Severity.ERROR,
            "a pass over the pending deliveries was stopped before its end",
            action="scan_deliveries_cut_off",
        )
