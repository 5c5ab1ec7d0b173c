"""`sweep_idle_customers`: who was not seen for a year is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.errors import Severity, VpayError, describe
from vpay_tasks.handlers.context import Context
from vpay_tasks.payments import customers as people
from vpay_tasks.store import customers
from vpay_tasks.store.db import Database
from vpay_tasks.telemetry import say

PAGE: Final = 100
"""Each is a transaction that renders up to 500 events anew."""


@task(kinds.SWEEP_IDLE_CUSTOMERS)
def sweep_idle_customers(_job: Job, ctx: Context) -> Answer:
    """A page of those to erase, and a page of those whose erasure is not finished, because
    there was much or because a process died. One transaction per customer."""
    with ctx.db.connection() as connection:
        idle = customers.page_idle(connection, idle=people.IDLE_S, page=PAGE)
    erased = sum(_tried(people.erase_if_idle, ctx.db, customer) for customer in idle)
    with ctx.db.connection() as connection:
        unfinished = customers.page_to_redact(connection, page=PAGE)
    more = sum(_tried(people.redact_page, ctx.db, customer) for customer in unfinished)
    if erased or unfinished:
        say(
            Severity.INFO,
            "idle customers were erased",
            action="sweep_idle_customers",
            erased=erased,
            redacted_further=len(unfinished),
        )
    full = (len(idle) == PAGE and erased > 0) or more > 0
    return Again(0) if full else Done()


def _tried(do: Callable[[Database, str], bool], db: Database, customer_id: str) -> bool:
    try:
        return do(db, customer_id)
    except VpayError as error:
        say(
            Severity.WARN,
            "a customer could not be erased; the next sweep tries again",
            action="sweep_idle_customers",
            customer_id=customer_id,
            error=describe(error),
        )
        return False
