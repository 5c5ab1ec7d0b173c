"""Charges that want another submit, and a look at what was submitted."""

from __future__ import annotations

from typing import Any

from tests.payment_kit import (
    make_attempt,
    make_charge,
    read_attempts,
)
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import AttemptClass, Charge
from vpay_tasks.store.db import Database

SUBMITS = "*/requesttopay"
DAY = 86_400.0
WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def submits(stub: StubRail) -> list[str]:
    """The reference of each submit that the rail got."""
    return [seen.request.headers["x-reference-id"] for seen in stub.requests(SUBMITS)]


def classes(database: Database, charge: Charge) -> list[AttemptClass | None]:
    return [attempt.answer for attempt in read_attempts(database, charge)]


def unsent(database: Database, **columns: Any) -> Charge:
    """A charge whose confirm died before it wrote that it would submit."""
    return make_charge(database, **{"age": 61, **columns})


def denied(database: Database, **columns: Any) -> Charge:
    """A charge whose submit was not answered, and which the rail has denied for a minute."""
    columns = {"age": 200, "not_found_streak": 3, "not_found_for": 60, **columns}
    charge = make_charge(database, **columns)
    make_attempt(database, charge, None)
    return charge


def resubmitting(database: Database) -> list[dict[str, object]]:
    with database.connection() as connection:
        rows = connection.execute("SELECT payload FROM vpay.jobs WHERE kind = 'resubmit_charge'")
        return [payload for (payload,) in rows]
