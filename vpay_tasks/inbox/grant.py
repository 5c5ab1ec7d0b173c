"""One attempt to grant an event: the user's function, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass

from vpay_tasks.core.job import Again, Done, Job, Park
from vpay_tasks.core.strict_json import Unparseable, read_event
from vpay_tasks.errors import InvalidRequest, LeaseLost, sanitise
from vpay_tasks.inbox.job import REASON_MAX, Event, InboxJob
from vpay_tasks.inbox.registry import GRANTS, Grant, Grants
from vpay_tasks.store.db import Database
from vpay_tasks.store.inbox import UNPARSEABLE, Row


@dataclass(frozen=True)
class Finished:
    """It has ended event and job itself, in one commit with what it wrote."""


@dataclass(frozen=True)
class Granted:
    """It did its work; the event is yet to be marked."""

    job: InboxJob


@dataclass(frozen=True)
class Later:
    """It wants to be called again; nothing has failed."""

    after: float


@dataclass(frozen=True)
class Ignored:
    """Nobody declared a grant for this type."""


@dataclass(frozen=True)
class GivenUp:
    """It can never work: the function says so, or the body is no event."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """It raised."""

    error: BaseException


Outcome = Finished | Granted | Later | Ignored | GivenUp | Failed


def attempt(row: Row, job: Job, db: Database, grants: Grants = GRANTS) -> Outcome:
    """Call the grant of `row`, with no transaction open. Raises LeaseLost, when the event is
    another run's by now, and what is raised after the grant's own end, which changes nothing."""
    grant = grants.find(row.vendor, row.type)
    if grant is None:
        return Ignored()
    try:
        event = _event(row)
    except Unparseable:
        return GivenUp(UNPARSEABLE)
    return _call(grant, event, InboxJob(job, row, db))


def _call(grant: Grant, event: Event, job: InboxJob) -> Outcome:
    try:
        answer = grant(event, job)
        if answer is not None and not isinstance(answer, Done | Again | Park):
            raise InvalidRequest(  # noqa: TRY301 - fails like everything else it does wrong
                f"a grant answers Done, Again, Park or None, not {type(answer).__name__}"
            )
    except LeaseLost:
        raise
    except BaseException as error:
        # Whatever it is: an event's own ladder is walked, never the job's, which has no end.
        if job.finished:
            raise
        return Failed(error)
    if job.finished:
        return Finished()
    match answer:
        case None | Done():
            return Granted(job)
        case Again(after):
            return Later(after)
        case Park(text=text):
            return GivenUp(sanitise(text, REASON_MAX) or "given up")


def _event(row: Row) -> Event:
    return Event(
        vendor=row.vendor,
        account=row.account,
        id=row.event_id,
        type=row.type,
        reference=row.reference,
        received_at=row.received_at,
        json=read_event(row.body),
        raw=row.body,
    )
