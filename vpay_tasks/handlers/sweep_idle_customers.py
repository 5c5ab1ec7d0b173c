"""`sweep_idle_customers`: who was not seen for a year is forgotten."""

from __future__ import annotations

from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.core.walk import Place, Walked
from vpay_tasks.errors import Severity
from vpay_tasks.handlers.context import Context
from vpay_tasks.payments import customers as people
from vpay_tasks.payments.walk import walk
from vpay_tasks.store import customers
from vpay_tasks.store.db import Database
from vpay_tasks.telemetry import count, say

PAGE: Final = 100
"""Each is a transaction that renders up to 500 events anew."""


@task(kinds.SWEEP_IDLE_CUSTOMERS)
def sweep_idle_customers(job: Job, ctx: Context) -> Answer:
    """Those to erase, then a page more of those whose erasure is not finished, because there
    was much or because a process died. One transaction per customer."""
    erased = _erase(job, ctx.db)
    further = _redact(job, ctx.db)
    if erased.moved or further.moved:
        count("swept", erased.moved)
        say(
            Severity.INFO,
            "idle customers were erased",
            action="sweep_idle_customers",
            erased=erased.moved,
            unfinished=further.moved,
        )
    more = further.moved > 0 or (not erased.whole and erased.moved > 0)
    return Again(0) if more else Done()


def _erase(job: Job, db: Database) -> Walked:
    def page(after: Place) -> list[Place]:
        with db.connection() as connection:
            return customers.page_idle(connection, after, idle=people.IDLE_S, page=PAGE)

    def one(customer: Place) -> bool:
        return people.erase_if_idle(db, customer.id)

    return walk(job, page, one, size=PAGE, action="sweep_idle_customers")


def _redact(job: Job, db: Database) -> Walked:
    def page(after: Place) -> list[Place]:
        with db.connection() as connection:
            return customers.page_to_redact(connection, after, page=PAGE)

    def one(customer: Place) -> bool:
        return people.redact_page(db, customer.id)

    return walk(job, page, one, size=PAGE, action="sweep_idle_customers")
