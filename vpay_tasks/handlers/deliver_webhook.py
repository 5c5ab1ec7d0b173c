"""`deliver_webhook`: one attempt to bring an event to an endpoint.

The record is committed before the job is settled, and alone: if the process dies between
the two, the next run finds the delivery ended, or its next attempt still ahead, and posts
nothing. It doesn't ride on the job's finish, since a 2xx counts even from a run that has
lost its lease.

A job ends only with its delivery: by this run's own record, or because the delivery had
ended when it was read. A record that came too late to count proves neither, so its run looks
again: a pending delivery whose job is gone would wait for ever.

A run that was stopped may wake behind another's attempt, before anybody could tell it so. It
posts only while its own clock says that its lease can't have ended.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from datetime import UTC, datetime

from vpay_tasks.core import delivery as rules
from vpay_tasks.core import kinds
from vpay_tasks.core.delivery import Check, Outcome, Stamp
from vpay_tasks.core.job import Again, Answer, Done, Job, Park
from vpay_tasks.core.task import task
from vpay_tasks.errors import DeadReason, Severity
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import deliveries, lanes
from vpay_tasks.store.deliveries import Attempt, Delivery, Recorded, State
from vpay_tasks.store.lanes import Pause
from vpay_tasks.webhooks import send
from vpay_tasks.webhooks.endpoints import Endpoint
from vpay_tasks.webhooks.recording import record, tell, tell_closed
from vpay_tasks.webhooks.send import Trouble
from vpay_tasks.webhooks.sign import headers, key_id

LOST_RACE_S = 1.0
"""Another run moved the delivery under this one: look again once it has settled."""


@dataclass(frozen=True)
class Asked:
    """An attempt that is over, and what the receiver wishes about the next."""

    attempt: Attempt
    retry_after: str | None = None
    trouble: Trouble | None = None


@task(kinds.DELIVER_WEBHOOK)
def deliver_webhook(job: Job, ctx: Context, *, delivery_id: str) -> Answer:
    """Payload: the delivery's id."""
    # Read.
    with ctx.db.connection() as connection:
        found = deliveries.read(connection, delivery_id)
    if found is None or found.state != "pending":
        return Done()
    if found.wait > 0:
        return Again(found.wait)
    if found.held:
        return Again(LOST_RACE_S)  # claimed before the pause: from now on the claim waits
    # Ask.
    asked = _ask(job, ctx, found)
    if not isinstance(asked, Asked):
        return asked
    # Decide. Write. Answer.
    match rules.outcome(asked.attempt.status):
        case Outcome.DELIVERED:
            return _delivered(ctx, found, asked)
        case Outcome.GONE:
            return _gone(ctx, found, asked)
        case Outcome.FAILED:
            return _failed(ctx, found, asked)


def _ask(job: Job, ctx: Context, found: Delivery) -> Asked | Answer:
    """The attempt; or the answer that ends this run without one."""
    endpoint = ctx.endpoints.get(found.merchant_id, found.endpoint_id)
    secrets = endpoint.live_secrets(_instant(found.now)) if endpoint is not None else ()
    if endpoint is None or not secrets:
        return _not_sent(found, endpoint)
    digest = hashlib.sha256(found.body).digest()
    match rules.check(_stamp(found), Stamp(digest, found.body_rev)):
        case Check.POISONED:
            return _poison(ctx, found)
        case Check.STAMP_FIRST:
            with ctx.db.connection() as connection:
                if not deliveries.stamp(connection, found, digest):
                    return Again(LOST_RACE_S)
        case Check.SEND:
            pass
    try:
        return _post(job, ctx, found, endpoint, secrets, digest)
    except send.Withheld:
        return Again(LOST_RACE_S)


def _post(
    job: Job,
    ctx: Context,
    found: Delivery,
    endpoint: Endpoint,
    secrets: tuple[str, ...],
    digest: bytes,
) -> Asked:
    """Raises Withheld when the lease may be another's by the time the connection stands."""
    number = found.attempts + 1
    answer = send.post(
        endpoint.url,
        headers(found.body, secrets, int(found.now), event_id=found.event_id, attempt=number),
        found.body,
        rules=ctx.endpoints.rules,
        connect=ctx.windows.delivery_connect,
        whole=ctx.windows.delivery_attempt,
        hide=secrets,
        may_send=lambda: job.held,
    )
    attempt = Attempt(
        number=number,
        begun=found.now,
        seconds=answer.seconds,
        status=answer.status,
        excerpt=answer.excerpt,
        address=answer.address,
        config_hash=endpoint.config_hash,
        key_ids=[key_id(secret) for secret in secrets],
        # Without it the attempt is no silence of the receiver's: nobody looked for it.
        digest=None if answer.trouble is Trouble.URL else digest,
        ladder_from=found.ladder_from,
    )
    _tell_name_trouble(ctx, found, endpoint, answer)
    return Asked(attempt, answer.retry_after, answer.trouble)


def _tell_name_trouble(
    ctx: Context, found: Delivery, endpoint: Endpoint, answer: send.Answer
) -> None:
    trouble = answer.excerpt if answer.trouble is Trouble.NAME else None
    if ctx.endpoints.is_new_trouble(endpoint, trouble):
        sentence = "an endpoint's name leads nowhere that we call"
        tell(Severity.ERROR, sentence, "endpoint_name", found, error=trouble)


def _not_sent(found: Delivery, endpoint: Endpoint | None) -> Asked:
    """A rollout may heal it, so it walks the ladder like any failure."""
    why = "is not in the settings" if endpoint is None else "has no secret that is valid now"
    return Asked(
        Attempt(
            number=found.attempts + 1,
            begun=found.now,
            seconds=0.0,
            status=None,
            excerpt=f"not sent: the endpoint {why}",
            config_hash=endpoint.config_hash if endpoint is not None else None,
            ladder_from=found.ladder_from,
        )
    )


def _delivered(ctx: Context, found: Delivery, asked: Asked) -> Answer:
    counted = record(ctx.db, found, asked.attempt, state="delivered")
    return Done() if counted else Again(LOST_RACE_S)


def _gone(ctx: Context, found: Delivery, asked: Asked) -> Answer:
    now = ctx.endpoints.get(found.merchant_id, found.endpoint_id)
    if now is None or now.config_hash != asked.attempt.config_hash:
        return _failed(ctx, found, asked)  # the 410 spoke for an address that we have left
    recorded = Recorded(counted=False, closed=False)
    with ctx.db.transaction() as tx:
        # Also for a record that comes too late: the receiver did ask us to stop.
        pause = lanes.pause_gone(
            tx,
            found.merchant_id,
            found.endpoint_id,
            begun=found.now,
            changed_by="receiver",
            reason="the receiver answered 410 Gone",
        )
        if pause is not Pause.RESUMED_SINCE:
            recorded = deliveries.record(tx, found.id, asked.attempt, state="gone", delay=None)
    if recorded.closed:
        tell_closed(found)
    match pause:
        case Pause.RESUMED_SINCE:
            return _failed(ctx, found, asked)
        case Pause.PAUSED:
            tell(Severity.ERROR, "an endpoint answered 410 and is paused", "endpoint_gone", found)
        case Pause.ALREADY:
            pass
    return Done() if recorded.counted else Again(LOST_RACE_S)


def _failed(ctx: Context, found: Delivery, asked: Asked) -> Answer:
    delay = rules.next_delay(
        # Time mends a name's trouble, never a URL that is refused as it is written.
        () if asked.trouble is Trouble.URL else ctx.ladders.delivery,
        found.attempts - found.ladder_from,
        spread=random.random(),  # noqa: S311 - spreads a herd, hides nothing
        status=asked.attempt.status,
        retry_after=asked.retry_after,
        now=found.now + asked.attempt.seconds,
    )
    state: State = "pending" if delay is not None else "exhausted"
    if not record(ctx.db, found, asked.attempt, state=state, delay=delay):
        return Again(LOST_RACE_S)
    return Again(delay) if delay is not None else Done()


def _poison(ctx: Context, found: Delivery) -> Answer:
    text = "the event's bytes differ from those that were signed before, at the same revision"
    with ctx.db.connection() as connection:
        poisoned = deliveries.poison(connection, found, text)
    if not poisoned:
        return Again(LOST_RACE_S)
    tell(Severity.PAGE, "a delivery is poisoned and was not sent", "delivery_poisoned", found)
    return Park(text, reason=DeadReason.POISONED)


def _stamp(found: Delivery) -> Stamp | None:
    if found.digest is None or found.digest_rev is None:
        return None
    return Stamp(found.digest, found.digest_rev)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
