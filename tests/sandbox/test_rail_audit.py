"""The auditor about the rail: what it has, what it moved, and who was killed at it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vpay_sandbox.report import Kill
from vpay_sandbox.scenarios import Script

from .ledgers import (
    BROKE,
    ENDPOINTS,
    PAID,
    PAID_EVENT,
    Change,
    agreeing,
    answer,
    call,
    effect,
    event_of,
    kill,
    paid,
    post,
    report_of,
)

ASKED_PAID, ASKED_BROKE = effect("prompt", PAID), effect("prompt", BROKE)
MOVED = effect("moved", PAID)


def left_open(scenario: str, *lines: Any, **changes: Any) -> Change:
    """The broken payment is another scenario's, without an event, and the rail has `lines`."""
    payment = replace(
        BROKE, scenario=scenario, status="processing", state="unresolved", code=None,
        last_error=None, **changes,
    )  # fmt: skip
    return lambda books: replace(
        books,
        payments=[PAID, payment],
        events=[PAID_EVENT],
        deliveries=books.deliveries[:2],
        posts=books.posts[:2],
        effects=[ASKED_PAID, MOVED, *(effect(line, payment) for line in lines)],
    )


def contradicted(**changes: Any) -> Change:
    """The broken payment was called both by the rail, which has moved the money."""
    payment = replace(
        BROKE, scenario="contradiction", code="payer_timeout", last_error="payer_timeout",
        **{"contradicted": True, **changes},
    )  # fmt: skip
    event = event_of(payment, "payment_intent.payment_failed")
    mine = [post(event, name) for _, name in ENDPOINTS]
    return lambda books: replace(
        books,
        payments=[PAID, payment],
        events=[PAID_EVENT, event],
        posts=[*books.posts[:2], *mine],
        effects=[ASKED_PAID, MOVED, effect("prompt", payment), effect("moved", payment)],
    )


def victim(scenario: str, *lines: Any, unanswered: int = 0, **others: Any) -> Change:
    """The paid payment is one that somebody was killed over."""
    payment = replace(PAID, scenario=scenario, unanswered=unanswered)
    seen = [effect("prompt", payment), effect("moved", payment), ASKED_BROKE]
    return lambda books: replace(
        books, payments=[payment, BROKE], effects=seen, kills=list(lines), **others
    )


WORKER, CONFIRM = "worker_killed_while_asking", "confirm_killed_while_submitting"
# Asked at 10, given up at 30: whoever asked was killed in between.
ASKED: dict[str, Any] = {
    "calls": [call("status", PAID, 3, t=10)],
    "answers": [answer(3, None, t=30)],
}
SENT: dict[str, Any] = {
    "calls": [call("submit", PAID, 3, t=10)],
    "answers": [answer(3, None, t=30)],
}

AGREEMENTS: dict[str, Change] = {
    "a payment that is left to a human": left_open("never_answered", "prompt"),
    "another amount moved, and nothing believed": (
        lambda books: replace(
            (there := left_open("wrong_amount", "prompt")(books)),
            effects=[
                *there.effects,
                effect("moved", BROKE, scenario="wrong_amount", moved_amount="1.23"),
            ],
        )
    ),
    "a contradiction that was seen": contradicted(),
    "a worker that was killed inside its question": victim(
        WORKER, kill("worker", PAID, 3, t=20), **ASKED
    ),
    "a confirm that was killed inside its submission": victim(
        CONFIRM, kill("confirm", PAID, 3, t=20), unanswered=1, **SENT
    ),
    "a submission that the rail never had": (
        lambda books: replace(
            books,
            payments=[
                PAID,
                replace(
                    BROKE,
                    scenario="submit_declined_payer_not_found",
                    code="invalid_payer",
                    last_error="invalid_payer",
                ),
            ],
            events=[
                PAID_EVENT,
                declined := event_of(
                    replace(BROKE, code="invalid_payer", last_error="invalid_payer"),
                    "payment_intent.payment_failed",
                ),
            ],
            posts=[*books.posts[:2], *(post(declined, name) for _, name in ENDPOINTS)],
            effects=[ASKED_PAID, MOVED],
        )
    ),
}


@pytest.mark.parametrize("what", AGREEMENTS)
def test_what_the_script_wants_is_no_disagreement(script: Script, what: str) -> None:
    report = report_of(script, AGREEMENTS[what](agreeing()))
    assert [str(finding) for finding in report.findings] == []
    assert (report.agrees, report.as_scripted) == (True, 2)


DISAGREEMENTS: dict[str, tuple[Change, str]] = {
    "money moved for one that is left to a human": (
        left_open("never_answered", "prompt", "moved"),
        "a payment that is unresolved means 0",
    ),
    "money received for one that is left to a human": (
        left_open("never_answered", "prompt", received=1050),
        "its charge is unresolved and 1050 minor units were received",
    ),
    "another amount that did not move": (
        left_open("wrong_amount", "prompt"),
        "moved the money 0 times for the one reference ref-broke; the script means 1",
    ),
    "another amount than the script's other one": (
        lambda books: replace(
            (there := left_open("wrong_amount", "prompt")(books)),
            effects=[
                *there.effects,
                effect("moved", BROKE, scenario="wrong_amount", moved_amount="1.24"),
            ],
        ),
        "the rail has 1.24 EUR for it",
    ),
    "a contradiction that nobody saw": (
        contradicted(contradicted=False),
        "the script says failed payer_timeout, contradicted, it is failed payer_timeout",
    ),
    "a contradiction that is none": (
        paid(contradicted=True),
        "the script says succeeded, it is succeeded, contradicted",
    ),
    "a worker that nobody killed": (
        victim(WORKER, **ASKED),
        "a worker was to be killed inside its status call, and none was",
    ),
    "a worker that was killed after its question": (
        victim(WORKER, kill("worker", PAID, 3, t=31), **ASKED),
        "a worker was to be killed inside its status call, and none was",
    ),
    "a worker that was killed before its question": (
        victim(WORKER, kill("worker", PAID, 3, t=9), **ASKED),
        "a worker was to be killed inside its status call, and none was",
    ),
    "a worker that was answered all the same": (
        victim(
            WORKER, kill("worker", PAID, 3, t=20), **{**ASKED, "answers": [answer(3, 200, t=30)]}
        ),
        "a worker was to be killed inside its status call, and none was",
    ),
    "a worker that was killed over a submission": (
        victim(WORKER, kill("worker", PAID, 3, t=20), **SENT),
        "a worker was to be killed inside its status call, and none was",
    ),
    "a confirm that was killed and wrote its answer down": (
        victim(CONFIRM, kill("confirm", PAID, 3, t=20), **SENT),
        "was killed inside the submission, and wrote its answer down",
    ),
    "a page that nobody opened": (
        paid(scenario="redirect_approved"),
        "its payer opens the rail's page, and the rail saw nobody",
    ),
    "a page that somebody opened": (
        lambda books: replace(books, calls=[*books.calls, call("page", PAID, 3)]),
        "its payer opens no page, and the rail showed one 1 time",
    ),
    "a reference that the script has lost": (
        paid(scenario="submit_declined_payer_not_found"),
        "the rail has its reference ref-paid, and the script has it lost",
    ),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_a_disagreement_with_the_rail_is_found_and_named(script: Script, what: str) -> None:
    change, words = DISAGREEMENTS[what]
    report = report_of(script, change(agreeing()))
    assert words in "\n".join(str(finding) for finding in report.findings)
    assert report.as_scripted == 1


def test_exposure_is_what_was_submitted_beyond_the_first_of_a_reference(script: Script) -> None:
    books = agreeing()
    more = [call("submit", PAID, 3), call("submit", PAID, 4), call("submit", BROKE, 5)]
    questions = [call("status", PAID, 6), {**call("submit", PAID, 7), "reference": None}]
    report = report_of(script, replace(books, calls=[*books.calls, *more, *questions]))
    assert report.agrees
    assert report.as_json()["exposure"] == 3


def test_kills_are_told_with_what_became_of_the_payment(script: Script) -> None:
    change = victim(CONFIRM, kill("confirm", PAID, 3, t=20), unanswered=1, **SENT)
    report = report_of(script, change(agreeing()))
    assert report.kills == [Kill("confirm", "somebody", "1", "succeeded", 1)]
    assert report.as_json()["killed"] == {"workers": 0, "confirms": 1}
