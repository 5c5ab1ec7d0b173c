"""A row that waits and its job: written together, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from vpay_tasks.core import kinds
from vpay_tasks.store import inbox, jobs, sql


def arm(tx: sql.Connection, row_id: int, lane: str) -> None:
    """See that the row has a job that runs: one that waits on its ladder goes on waiting, a
    parked one runs, a missing one is written. Lock the row first: jobs are locked behind it."""
    key = kinds.inbox_key(row_id)
    payload = {"inbox_id": row_id}
    queued = jobs.enqueue(tx, kinds.GRANT_INBOX, payload, dedupe_key=key, lane=lane)
    if not queued.inserted:
        jobs.unpark(tx, key)


def rearm(tx: sql.Connection, row_id: int, states: Sequence[inbox.State]) -> bool:
    """Have a row of one of `states` granted from the beginning, due now. False: it is in none
    of them."""
    lane = inbox.rearm(tx, row_id, states)
    if lane is None:
        return False
    arm(tx, row_id, lane)
    # One that waited on its ladder: the row's own wait is gone.
    jobs.pull_forward(tx, kinds.inbox_key(row_id), floor=0.0)
    return True
