"""Jobs in every state, and what a write made of all of them."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from tests.factories import a_job, change
from tests.store import tables
from tests.store.tables import Rows
from vpay_tasks.store.db import Database

FREED = {"lease": None, "locked_by": None, "locked_at": None, "lease_until": None}
TOKEN = uuid.uuid4()

LEASED = f"lease = '{TOKEN}', locked_by = 'w_gone', locked_at = now() - interval '40 s'"
CLAIMED = f"{LEASED}, lease_until = now() + interval '30 s', due = false"
CLAIM_OVER = f"{LEASED}, lease_until = now() - interval '1 ms', due = false"
RUNNING = f"{CLAIMED}, started_at = now() - interval '40 s'"
RUN_OVER = f"{CLAIM_OVER}, started_at = now() - interval '40 s'"


def everything(database: Database) -> Rows:
    with database.connection() as connection:
        return tables.everything(connection, "jobs")


def a_row(database: Database, assignments: str = "", **options: Any) -> int:
    id_ = a_job(database, **options)
    change(
        database,
        "run_at = now() - interval '1 hour', claims = 3, starts = 2, failures = 1,"
        " last_error = 'of before'",
        id_,
    )
    if assignments:
        change(database, assignments, id_)
    return id_


def bystanders(database: Database) -> None:
    """Rows in every state that nobody has anything to free of."""
    a_row(database)
    a_row(database, lane="a")
    a_row(database, "parked_at = now(), dead_reason = 'crashed'")
    a_row(database, CLAIMED.replace("w_gone", "w_lives"))
    a_row(database, RUNNING.replace("w_gone", "w_lives"), lane="a")


def in_the_future(instant: datetime, most: float) -> bool:
    """Up to `most` seconds ahead of when it was written, which was a moment ago."""
    ahead = (instant - datetime.now(instant.tzinfo)).total_seconds()
    return -60 < ahead <= most
