"""`sweep_expired`: what is over goes, a page at a time; checkout sessions end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.core.job import Again, Answer, Done, Job
from vpay_tasks.core.task import task
from vpay_tasks.core.walk import Place, Walked
from vpay_tasks.errors import Severity, VpayError
from vpay_tasks.handlers.context import Context
from vpay_tasks.payments import checkout
from vpay_tasks.payments.walk import walk
from vpay_tasks.store import assertions, idempotency, inbox, ratelimit, sessions, sql
from vpay_tasks.store.db import Database
from vpay_tasks.telemetry import count, say

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
def sweep_expired(job: Job, ctx: Context) -> Answer:
    """One page of everything, and every session that is over. What fails stops nobody else, and
    is raised at the end. Again at once only if there is more and something moved: what can't be
    moved would be tried in a tight loop."""
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
    try:
        walked = _expire_sessions(job, ctx.db)
    except VpayError as error:
        failed.append(error)
    else:
        moved["checkout_sessions"] = walked.moved
        more = more or (not walked.whole and walked.moved > 0)
    if any(moved.values()):
        count("swept", sum(moved.values()))
        say(Severity.INFO, "swept what was over", action="sweep_expired", **moved)
    if failed:
        raise failed[0]
    return Again(0) if more else Done()


def _expire_sessions(job: Job, db: Database) -> Walked:
    def page(after: Place) -> list[sessions.Due]:
        with db.connection() as connection:
            return sessions.page_due(connection, after, page=SESSIONS_PAGE)

    def one(due: sessions.Due) -> bool:
        return checkout.expire_due(db, due)

    return walk(job, page, one, size=SESSIONS_PAGE, action="sweep_expired")
