"""`sweep_expired`: what is over goes, a page at a time; checkout sessions end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.errors import Severity, VpayError, describe
from vpay_tasks.handlers.context import Context
from vpay_tasks.payments import checkout
from vpay_tasks.store import assertions, idempotency, inbox, ratelimit, sessions, sql
from vpay_tasks.store.db import Database
from vpay_tasks.telemetry import say

SESSIONS_PAGE: Final = 100
"""Each costs a transaction and makes an event for every endpoint of its merchant."""

DELETES: Final[dict[str, tuple[Callable[[sql.Connection], int], int]]] = {
    "idempotency_keys": (idempotency.sweep_idempotency_keys, idempotency.PAGE),
    "client_assertions": (assertions.sweep_assertions, assertions.PAGE),
    "inbox_events": (inbox.sweep_inbox, inbox.PAGE),
    "rate_limits": (ratelimit.sweep_rate_limits, ratelimit.PAGE),
}
"""Each deletes a page in a transaction of its own; the number is what makes a page full."""


@task(kinds.SWEEP_EXPIRED)
def sweep_expired(_job: Job, ctx: Context) -> Answer:
    """One page of everything. What fails stops nobody else, and is raised at the end. Again at
    once only if a page was full and something moved: else a full page that can't be moved
    would be tried in a tight loop."""
    failed: list[VpayError] = []
    moved: dict[str, int] = {}
    more = False
    for name, (delete, page) in DELETES.items():
        try:
            with ctx.db.connection() as connection:
                moved[name] = delete(connection)
        except VpayError as error:
            failed.append(error)
        else:
            more = more or moved[name] == page
    due = _due(ctx.db, failed)
    moved["checkout_sessions"] = sum(_expired(ctx.db, session) for session in due)
    more = more or (len(due) == SESSIONS_PAGE and moved["checkout_sessions"] > 0)
    if any(moved.values()):
        say(Severity.INFO, "swept what was over", action="sweep_expired", **moved)
    if failed:
        raise failed[0]
    return Again(0) if more else Done()


def _due(db: Database, failed: list[VpayError]) -> list[sessions.Due]:
    try:
        with db.connection() as connection:
            return sessions.page_due(connection, page=SESSIONS_PAGE)
    except VpayError as error:
        failed.append(error)
        return []


def _expired(db: Database, due: sessions.Due) -> bool:
    """A session that can't be expired costs a line and its turn, and is found again."""
    try:
        return checkout.expire_due(db, due)
    except VpayError as error:
        say(
            Severity.WARN,
            "a checkout session could not be expired; the next sweep tries again",
            action="sweep_expired",
            session_id=due.id,
            error=describe(error),
        )
        return False
