"""The matrix where money is: confirm, claim, start, ask, settlement, and their reaper."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.kills.driver import Point, Way
from tests.kills.places import Push, Question, Submission
from tests.kills.plays import Payment
from tests.kills.terms import (
    COMMITTED,
    COMMITTING,
    CUT,
    ERROR,
    GONE,
    KILL,
    LATE,
    ONCE,
    OVERRULED,
    REAPED,
    RETRIED,
    STOP,
    STRAIGHT,
    UNSTARTED,
    WRITTEN,
    at,
)

by_application = partial(Payment, by_application=True)


def poll(rows: str, *seen: str, **more: object) -> Way:
    return Way({"poll_charge": rows}, seen, **more)  # type: ignore[arg-type]


def sent_by_a_resubmit(*seen: str, requests: str = "begun answered", submits: int = 1) -> Way:
    """The confirm told nobody; the poll had the charge submitted."""
    rows = {"poll_charge": ONCE, "resubmit_charge": STRAIGHT, "provider_requests": requests}
    return Way(rows, ("resubmit", *seen), submits=submits)


def found_by_a_question(*seen: str, requests: str) -> Way:
    """The rail has it: nothing is sent again."""
    return Way({"poll_charge": ONCE, "provider_requests": requests}, seen)


CONFIRM: Final = (
    Point(
        "confirm_charge_written",
        by_application,
        at("charges", "written", WRITTEN),
        {
            KILL: poll(ONCE, "said"),
            STOP: sent_by_a_resubmit("said"),
            CUT: poll(STRAIGHT, "refused", "said"),
            ERROR: poll(STRAIGHT, "refused", "said"),
        },
    ),
    Point(
        "confirm_charge_committed",
        by_application,
        at("charges", "written", COMMITTED),
        {
            KILL: sent_by_a_resubmit(),
            STOP: sent_by_a_resubmit("said"),
            CUT: sent_by_a_resubmit("refused", "said"),
        },
    ),
    Point(
        "attempt_row_written",
        by_application,
        at("provider_requests", "begun", WRITTEN),
        {
            KILL: sent_by_a_resubmit(),
            # It holds the charge: nobody can be quicker, and it sends nothing any more.
            STOP: sent_by_a_resubmit("+exposure", "said"),
            CUT: sent_by_a_resubmit("said"),
            ERROR: sent_by_a_resubmit("said"),
        },
    ),
    Point(
        "attempt_row_committed",
        by_application,
        at("provider_requests", "begun", COMMITTED),
        {
            KILL: sent_by_a_resubmit("+exposure", requests="begun"),
            STOP: sent_by_a_resubmit("+exposure", "said", requests="begun answered"),
            CUT: sent_by_a_resubmit("+exposure", "said", requests="begun"),
        },
    ),
    Point(
        "submit_before_the_rail_has_it",
        by_application,
        partial(Submission, has_it=False),
        {
            KILL: sent_by_a_resubmit("+exposure", requests="begun", submits=2),
            STOP: sent_by_a_resubmit("+exposure", "said", submits=2),
            CUT: sent_by_a_resubmit("+exposure", "said", submits=2),
            ERROR: sent_by_a_resubmit("+exposure", "said", submits=2),
        },
    ),
    Point(
        "submit_the_rail_has_it",
        by_application,
        partial(Submission, has_it=True),
        {
            KILL: found_by_a_question(requests="begun"),
            STOP: found_by_a_question("said", requests="begun answered"),
            CUT: found_by_a_question("said", requests="begun answered"),
            ERROR: found_by_a_question("said", requests="begun answered"),
        },
    ),
    Point(
        "answer_written",
        by_application,
        at("provider_requests", "answered", WRITTEN),
        {
            KILL: found_by_a_question(requests="begun"),
            STOP: found_by_a_question("said", requests="begun answered"),
            CUT: found_by_a_question("said", requests="begun"),
            ERROR: found_by_a_question("said", requests="begun"),
        },
    ),
    Point(
        "answer_committed",
        by_application,
        at("provider_requests", "answered", COMMITTED),
        {
            KILL: found_by_a_question(requests="begun answered"),
            STOP: found_by_a_question("said", requests="begun answered"),
            CUT: found_by_a_question("said", requests="begun answered"),
        },
    ),
)

CLAIM: Final = (
    Point(
        "claim_written",
        Payment,
        at("poll_charge", "claim", WRITTEN),
        {
            KILL: poll(STRAIGHT),
            STOP: poll(UNSTARTED, "+duplicates_refused", expires="poll_charge"),
            CUT: poll(STRAIGHT, "the dispatcher can't claim"),
            ERROR: poll(STRAIGHT, "a queue can't be claimed from"),
        },
    ),
    Point(
        "claim_committed",
        Payment,
        at("poll_charge", "claim", COMMITTED),
        {
            KILL: poll(UNSTARTED, expires="poll_charge"),
            STOP: poll(UNSTARTED, "+duplicates_refused", expires="poll_charge"),
            CUT: poll(UNSTARTED, "the dispatcher can't claim", expires="poll_charge"),
        },
    ),
    Point(
        "publish_on_its_way",
        Payment,
        Push,
        {
            KILL: poll(UNSTARTED, expires="poll_charge"),
            STOP: poll(UNSTARTED, "+duplicates_refused", expires="poll_charge"),
            CUT: poll("claim release claim start end"),
        },
    ),
    Point(
        "published_unheard",
        Payment,
        partial(Push, arrives=True),
        # Killed or stopped, it is the place before: what nobody waits for is unheard anyway.
        {CUT: poll("claim (release claim )?start end")},
    ),
    Point(
        "start_written",
        Payment,
        at("poll_charge", "start", WRITTEN),
        {
            KILL: poll(UNSTARTED, expires="poll_charge"),
            STOP: poll(LATE, "settle_lost", expires="poll_charge"),
            CUT: poll(STRAIGHT),
            ERROR: poll(UNSTARTED, "a message could not be run", expires="poll_charge"),
        },
    ),
    Point(
        "start_committed",
        Payment,
        at("poll_charge", "start", COMMITTED),
        {
            KILL: poll(GONE),
            STOP: poll(LATE, "settle_lost", expires="poll_charge"),
            CUT: poll(OVERRULED),
        },
    ),
)

ASK: Final = Point(
    "the_rail_is_asked",
    Payment,
    Question,
    {
        KILL: poll(GONE),
        STOP: poll(LATE, "+settles_lost", expires="poll_charge"),
        CUT: poll(RETRIED, "+job_failures"),
        ERROR: poll(RETRIED, "+job_failures"),
    },
)

SETTLEMENT: Final = (
    ASK,
    Point(
        "settlement_charge_swapped",
        Payment,
        at("charges", "settled", WRITTEN),
        {
            KILL: poll(GONE),
            STOP: poll(LATE, "+settles_lost", expires="poll_charge"),
            CUT: poll(RETRIED, "+settles_ambiguous"),
            ERROR: poll(RETRIED, "+job_failures"),
        },
    ),
    Point(
        "settlement_event_written",
        Payment,
        at("events", "written", WRITTEN),
        {
            KILL: poll(GONE),
            STOP: poll(LATE, "+settles_lost", expires="poll_charge"),
            CUT: poll(RETRIED, "+settles_ambiguous"),
            ERROR: poll(RETRIED, "+job_failures"),
        },
    ),
    Point(
        "settlement_committing",
        Payment,
        at("events", "written", COMMITTING),
        {
            KILL: poll(GONE),
            STOP: poll(STRAIGHT),
            CUT: poll(RETRIED, "+settles_ambiguous"),
            ERROR: poll(RETRIED, "+job_failures"),
        },
    ),
    Point(
        "settlement_committed",
        Payment,
        at("events", "written", COMMITTED),
        {
            KILL: poll(STRAIGHT),
            STOP: poll(STRAIGHT),
            CUT: poll(STRAIGHT, "+settles_ambiguous"),
        },
    ),
)


REAP: Final = (
    Point(
        "reap_written",
        Payment,
        at("poll_charge", "worker_gone", WRITTEN),
        {
            KILL: poll(GONE),
            STOP: poll(GONE),
            CUT: poll(GONE, "a timer could not run"),
            ERROR: poll(GONE, "a timer could not run"),
        },
        behind=ASK,
    ),
    Point(
        "reap_committed",
        Payment,
        at("poll_charge", "worker_gone", COMMITTED),
        {KILL: poll(REAPED), STOP: poll(REAPED), CUT: poll(GONE, "a timer could not run")},
        behind=ASK,
    ),
)
