"""The auditor: three journals in, what does not agree out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from vpay_sandbox.books import Books, ParkedJob
from vpay_sandbox.report import percentile
from vpay_sandbox.scenarios import Script

from .ledgers import (
    BROKE,
    BROKE_EVENT,
    ENDPOINTS,
    PAID,
    PAID_EVENT,
    Change,
    agreeing,
    delivered,
    effect,
    event_of,
    paid,
    post,
    report_of,
)


def test_journals_that_agree_have_no_finding(script: Script) -> None:
    report = report_of(script, agreeing())
    assert [str(finding) for finding in report.findings] == []
    assert report.agrees
    assert report.as_json() == {
        "payments": 2,
        "as_scripted": 2,
        "events": 2,
        "delivered": 4,
        "signatures_ok": 4,
        "lost": 0,
        "killed": {"workers": 0, "confirms": 0},
        "exposure": 0,
        "settle_to_delivery_ms": {"p50": 40.0, "p99": 40.0},
    }
    assert report.settle_ms == [800.0, 800.0]
    assert {row.scenario: (row.count, row.verified, row.wanted) for row in report.rows} == {
        "approved_first_poll": (1, 2, 2),
        "failed_not_enough_funds": (1, 2, 2),
    }


def paid_event(**changes: Any) -> Change:
    """Another event of the paid payment, posted and recorded as it is."""

    def change(books: Books) -> Books:
        event = event_of(PAID, "payment_intent.succeeded", **changes)
        mine = [post(event, name) for _, name in ENDPOINTS]
        others = [one for one in books.posts if one["event"] != event.id]
        return replace(books, events=[event, BROKE_EVENT], posts=mine + others)

    return change


def posts(**changes: Any) -> Change:
    """The paid event's post to the steady endpoint."""

    def change(books: Books) -> Books:
        first, *others = books.posts
        return replace(books, posts=[{**first, **changes}, *others])

    return change


def effects(*lines: Any) -> Change:
    return lambda books: replace(books, effects=lines)


def without(field: str, keep: Callable[[Any], bool]) -> Change:
    return lambda books: replace(
        books, **{field: [one for one in getattr(books, field) if keep(one)]}
    )


ASKED_PAID, ASKED_BROKE = effect("prompt", PAID), effect("prompt", BROKE)
MOVED = effect("moved", PAID)
TWICE = replace(PAID_EVENT, id="evt_again")


DISAGREEMENTS: dict[str, tuple[Change, int, str]] = {
    # what is changed → how many are lost, and words of a finding
    "a success that the script has as a failure": (
        paid(scenario="failed_expired"),
        0,
        "the script says failed payer_timeout, it is succeeded",
    ),
    "a failure for another reason": (
        lambda books: replace(
            books,
            payments=[PAID, replace(BROKE, code="provider_error", last_error="provider_error")],
        ),
        0,
        "the script says failed insufficient_funds, it is failed provider_error",
    ),
    "a charge that has not ended": (
        lambda books: replace(
            paid(state="pending", status="processing", received=0)(books), events=[BROKE_EVENT]
        ),
        3,  # its event, and what both endpoints were told
        "the script says succeeded, it is pending",
    ),
    "an intent that was never confirmed": (
        lambda books: replace(
            paid(charge=None, reference=None, state=None, status="requires_payment_method")(books)
        ),
        1,
        "was made and never confirmed",
    ),
    "an unscripted payment": (paid(scenario="nonsense"), 0, "is not scripted"),
    "another amount charged": (paid(charge_amount=1), 0, "asked for 1050 EUR, charged 1 EUR"),
    "less received": (paid(received=1), 0, "its charge is succeeded and 1 minor units"),
    "an intent behind its charge": (
        paid(status="processing"),
        0,
        "its charge is succeeded and its intent processing",
    ),
    "an intent with another error": (
        lambda books: replace(books, payments=[PAID, replace(BROKE, last_error=None)]),
        0,
        "its intent says None",
    ),
    "a reference that the rail lacks": (
        effects(ASKED_BROKE),
        1,
        "the rail does not have its reference ref-paid",
    ),
    "a reference that the database lacks": (
        effects(ASKED_PAID, MOVED, ASKED_BROKE, effect("prompt", PAID, reference="ref-strange")),
        1,
        "the rail has a payment that the database does not have",
    ),
    "two effects": (
        effects(ASKED_PAID, MOVED, MOVED, ASKED_BROKE),
        0,
        "the rail moved the money 2 times for the one reference ref-paid",
    ),
    "no effect": (effects(ASKED_PAID, ASKED_BROKE), 0, "moved the money 0 times"),
    "an effect of a failure": (
        effects(ASKED_PAID, MOVED, ASKED_BROKE, effect("moved", BROKE)),
        0,
        "a payment that is failed means 0",
    ),
    "two prompts": (
        effects(ASKED_PAID, ASKED_PAID, MOVED, ASKED_BROKE),
        0,
        "asked the payer 2 times",
    ),
    "another payer": (
        effects(effect("prompt", PAID, scenario="slow_answers"), MOVED, ASKED_BROKE),
        0,
        "the rail played slow_answers",
    ),
    "another amount at the rail": (
        effects(ASKED_PAID, effect("moved", PAID, moved_amount="1050"), ASKED_BROKE),
        0,
        "the rail has 1050 EUR for it",
    ),
    "another currency at the rail": (
        effects(effect("prompt", PAID, currency="XAF"), MOVED, ASKED_BROKE),
        0,
        "the rail has 10.50 XAF for it",
    ),
    "a removed event": (
        without("events", lambda event: event.id != PAID_EVENT.id),
        3,
        "no event tells of it: one payment_intent.succeeded is lost",
    ),
    "a second event": (
        lambda books: replace(books, events=[*books.events, TWICE]),
        2,
        "2 events tell of it: evt_paid, evt_again",
    ),
    "an event of nothing": (
        lambda books: replace(books, events=[*books.events, replace(TWICE, about="pi_gone")]),
        2,
        "no payment pi_gone exists",
    ),
    "an event with another amount": (
        paid_event(amount=1),
        0,
        "amount: it says 1, the database 1050",
    ),
    "an event with another state": (
        paid_event(status="processing"),
        0,
        "status: it says processing",
    ),
    "an event without an object": (
        lambda books: replace(books, events=[replace(PAID_EVENT, body=b"{}"), BROKE_EVENT]),
        0,
        "its stored body can't be read: KeyError",
    ),
    "an event of the other type": (
        lambda books: replace(
            books, events=[event_of(PAID, "payment_intent.payment_failed"), BROKE_EVENT]
        ),
        0,
        "type: it says payment_intent.payment_failed, the database payment_intent.succeeded",
    ),
    "a dropped post": (
        without("posts", lambda one: one["endpoint"] != "shaky"),
        2,
        "the receiver accepted none of the 0 posts",
    ),
    "a post that was refused": (posts(status=500), 1, "accepted none of the 1 post"),
    "a post that nobody answered": (posts(status=None), 1, "accepted none of the 1 post"),
    "a post with other bytes": (posts(sha256="00"), 0, "1 post had other bytes"),
    "a signature that stripe refuses": (
        posts(stripe=False, verified=False, why="stripe refuses the signature"),
        0,
        "1 of 1 post not verified: stripe refuses the signature",
    ),
    "a signature that stripe was not asked about": (
        posts(stripe=None),
        0,
        "1 of 1 post not verified",
    ),
    "a missing delivery": (
        without("deliveries", lambda one: one.event != PAID_EVENT.id),
        2,
        "the database has no delivery of it",
    ),
    "a delivery that has not ended": (
        lambda books: replace(
            books, deliveries=[delivered(PAID_EVENT, "steady", "pending"), *books.deliveries[1:]]
        ),
        1,
        "the database says pending after 1 attempt, the last with the answer 200",
    ),
    "a delivery to nobody": (
        lambda books: replace(books, deliveries=[*books.deliveries, delivered(PAID_EVENT, "old")]),
        0,
        "the database has it, and nobody asked for it",
    ),
    "a post to nobody": (
        lambda books: replace(books, posts=[*books.posts, post(PAID_EVENT, "old")]),
        0,
        "was posted to an endpoint that nobody has",
    ),
    "a parked job": (
        lambda books: replace(books, parked=[ParkedJob(7, "poll_charge", "{}", "poisoned", None)]),
        0,
        "is parked and waits for a person: poisoned: no error",
    ),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_a_disagreement_is_found_and_named(script: Script, what: str) -> None:
    change, lost, words = DISAGREEMENTS[what]
    report = report_of(script, change(agreeing()))
    assert not report.agrees
    told = "\n".join(str(finding) for finding in report.findings)
    assert words in told
    assert report.lost == lost, told


def test_payments_that_no_journal_has_are_lost(script: Script) -> None:
    report = report_of(script, agreeing(), asked=5)
    assert report.lost == 3
    assert [finding.about for finding in report.findings] == ["3 of 5 payments"]


def test_scenarios_are_told_in_the_scripts_order(script: Script) -> None:
    books = agreeing()
    report = report_of(script, replace(books, payments=[*reversed(books.payments)]))
    assert [row.scenario for row in report.rows] == [
        "approved_first_poll", "failed_not_enough_funds",
    ]  # fmt: skip


def test_a_payment_is_not_as_scripted_when_the_rail_says_otherwise(script: Script) -> None:
    report = report_of(script, effects(ASKED_PAID, MOVED, MOVED, ASKED_BROKE)(agreeing()))
    assert report.as_scripted == 1


def test_retries_count_from_the_first_post_and_to_the_accepted_one(script: Script) -> None:
    books = agreeing()
    first = books.posts[0]
    later = {**first, "at": first["at"] + 500}
    report = report_of(
        script, replace(books, posts=[{**first, "status": 500}, later, *books.posts[1:]])
    )
    assert report.agrees
    assert sorted(report.post_ms) == [40.0, 40.0, 40.0, 40.0]
    assert sorted(report.accepted_ms) == [40.0, 40.0, 40.0, 540.0]


def test_an_event_that_was_delivered_twice_is_no_disagreement(script: Script) -> None:
    """At least once is the promise; the event's id is the receiver's key."""
    books = agreeing()
    report = report_of(script, replace(books, posts=[*books.posts, books.posts[0]]))
    assert report.agrees
    assert report.delivered == 4


def test_times_are_from_the_charge_to_the_event(script: Script) -> None:
    earlier = paid(confirmed_at=PAID_EVENT.created_at - timedelta(seconds=2))
    assert report_of(script, earlier(agreeing())).settle_ms == [2000.0, 800.0]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 50, None),
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.0),
        ([*map(float, range(1, 101))], 50, 50.0),
        ([*map(float, range(1, 101))], 99, 99.0),
        ([*map(float, range(1, 41))], 99, 40.0),
    ],
)
def test_percentiles_are_values_that_were_seen(
    values: list[float], share: int, expected: float | None
) -> None:
    assert percentile(values, share) == expected
