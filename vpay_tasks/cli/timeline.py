"""What became of a charge, told to somebody who was woken for it: pure, from a Case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from vpay_tasks.core import money
from vpay_tasks.core.charge import State
from vpay_tasks.core.events import EventType
from vpay_tasks.errors import sanitise
from vpay_tasks.status import RUN_AGAIN, human
from vpay_tasks.store.cases import Case

EXCERPT = 160
"""Characters of somebody else's words in a line; `--json` has all of them."""
ERROR = 600
"""Characters of an error's chain: what it came to stands first, why it did stands last."""


ENDS = frozenset({EventType.PAYMENT_INTENT_SUCCEEDED, EventType.PAYMENT_INTENT_PAYMENT_FAILED})


@dataclass(frozen=True)
class Entry:
    """One thing that happened, or will."""

    at: datetime
    what: str
    text: str


def entries(case: Case) -> list[Entry]:
    """Everything in order of time; of one instant, in the order in which it is written."""
    found = [*_of_payment(case), *_of_submits(case), *_of_polls(case), *_of_webhooks(case)]
    return sorted(found, key=lambda entry: entry.at)


def steps(case: Case) -> Iterator[str]:
    """What a person does next, one sentence each; calm where there is nothing to do."""
    charge, poll = case.charge, case.poll
    live = not State(charge.state).terminal
    if charge.contradicted_at is not None:
        yield (
            f"The rail says the opposite of {charge.state}. Nothing was moved. Compare both sides"  # noqa: S608 - a person types it
            f" with {charge.rail} by the reference {charge.reference}. Once that is cleared up:"
            f" UPDATE vpay.charges SET contradicted_at = NULL WHERE id = '{charge.id}';"
        )
    if charge.state == State.UNRESOLVED:
        yield (
            f"{charge.rail} has not given its word in {human(_age(case))}. Ask it about the"
            f" reference {charge.reference}; never settle a charge by hand. It is asked hourly,"
            " for ever."
        )
    if live and poll is None:
        yield (
            "Nobody asks the rail: the poll is gone. A backstop writes a new one within ten"
            " minutes; if it does not, see that vpay-dispatch and the workers run."
        )
    elif live and poll is not None and poll.dead_reason is not None:
        yield (
            f"Nobody asks the rail: the poll is parked ({poll.dead_reason}). To let it go on:"
            f" {RUN_AGAIN.replace('…', str(poll.id))};"
        )
    elif live and poll is not None and poll.last_error:
        yield f"The last ask ended by: {_cut(poll.last_error, ERROR)}"
    for delivery in case.deliveries:
        if delivery.state not in {"pending", "delivered"}:
            yield (
                f"The merchant was not told at {delivery.endpoint_id} ({delivery.state}):"
                f" vpay-tasks deliveries show {delivery.id}"
            )
    for event in case.events:
        if event.fanout_state == "failed":
            yield f"The event {event.id} could not be fanned out: nobody was told of it."
    if live and poll is not None and poll.dead_reason is None:
        yield f"Nothing by hand: {_next(case)}."


def amount(minor: int, currency: str) -> str:
    return f"{money.major_text(minor, currency)} {currency}"


def asked(polls: int) -> str:
    """How often the rail was asked in vain, if it was."""
    return f"; {polls} ask{'' if polls == 1 else 's'} brought no end" if polls else ""


def _age(case: Case) -> float:
    return (case.charge.now - case.charge.created_at).total_seconds()


def _next(case: Case) -> str:
    poll = case.poll
    if poll is None:
        return "the rail is not asked again"
    if poll.started_at is not None:
        return "the rail is being asked now"
    wait = (poll.run_at - case.charge.now).total_seconds()
    return f"the rail is asked in {human(wait)}" if wait > 0 else "the rail is asked next"


def _of_payment(case: Case) -> Iterator[Entry]:
    charge = case.charge
    whole = amount(charge.amount, charge.currency)
    yield Entry(charge.intent_created_at, "intent", f"{charge.intent_id} of {whole}")
    yield Entry(charge.created_at, "charge", f"written, to go over {charge.rail}")
    if charge.state == State.SUCCEEDED:
        txn = f", the rail's transaction {sanitise(charge.txn_id)}" if charge.txn_id else ""
        yield Entry(charge.updated_at, "charge", f"succeeded{txn}")
    elif charge.state == State.FAILED:
        raw = f": {_cut(charge.failure_raw)}" if charge.failure_raw else ""
        yield Entry(charge.updated_at, "charge", f"failed, {charge.failure_code}{raw}")
    for posting in case.postings:
        whole = amount(posting.amount, charge.currency)
        text = f"{posting.kind} of {whole}, from {posting.debit} to {posting.credit}"
        yield Entry(posting.posted_at, "ledger", text)
    if charge.contradicted_at is not None:
        text = f"the rail says the opposite of {charge.state}; nothing was moved"
        yield Entry(charge.contradicted_at, "contradiction", text)


def _of_submits(case: Case) -> Iterator[Entry]:
    for number, submit in enumerate(case.submits, 1):
        what = f"submit {number}"
        yield Entry(submit.sent_at, what, "sent")
        if submit.answered_at is None:
            yield Entry(submit.sent_at, what, "no answer is written down: the rail may have it")
        else:
            code = f", {submit.code}" if submit.code else ""
            detail = f": {_cut(submit.detail)}" if submit.detail else ""
            yield Entry(submit.answered_at, what, f"{submit.answer}{code}{detail}")


def _of_polls(case: Case) -> Iterator[Entry]:
    charge = case.charge
    if charge.last_asked_at is not None:
        streak = charge.not_found_streak
        unknown = f"; not found {streak} times in a row" if streak else ""
        yield Entry(charge.last_asked_at, "ask", f"the last one{asked(charge.polls)}{unknown}")
    for job in case.jobs:
        what = "poll" if job is case.poll else "resubmit"
        if job.parked_at is not None:
            yield Entry(job.parked_at, what, f"job {job.id} parked, {job.dead_reason}")
        elif job.started_at is not None:
            yield Entry(job.started_at, what, f"job {job.id} runs")
        else:
            tries = f", {job.failures} errors in a row" if job.failures else ""
            yield Entry(job.run_at, what, f"job {job.id} due{tries}")


def _of_webhooks(case: Case) -> Iterator[Entry]:
    endpoints = {delivery.id: delivery.endpoint_id for delivery in case.deliveries}
    for event in case.events:
        state = {"pending": ", not fanned out yet", "failed": ", fan-out failed"}
        text = f"{event.type} {event.id}{state.get(event.fanout_state, '')}"
        at = event.created_at
        if event.type in ENDS and State(case.charge.state).terminal:
            # Of one transaction, and stamped at its beginning: it follows what it reports.
            at = max(at, case.charge.updated_at)
        yield Entry(at, "event", text)
    for delivery in case.deliveries:
        text = f"{delivery.id} to {delivery.endpoint_id}: {delivery.state}"
        yield Entry(delivery.created_at, "delivery", text)
        if delivery.next_attempt_at is not None:
            text = f"{delivery.endpoint_id}: next attempt"
            yield Entry(delivery.next_attempt_at, "delivery", text)
    for post in case.posts:
        status = "no answer" if post.status is None else str(post.status)
        late = "" if post.counted else ", too late to count"
        words = f": {_cut(post.excerpt)}" if post.excerpt and post.status != 200 else ""
        text = f"{endpoints[post.delivery_id]}, attempt {post.number}: {status}"
        yield Entry(
            post.begun_at, "post", f"{text} after {human(post.milliseconds / 1000)}{late}{words}"
        )


def _cut(words: str, limit: int = EXCERPT) -> str:
    clean = sanitise(words)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
