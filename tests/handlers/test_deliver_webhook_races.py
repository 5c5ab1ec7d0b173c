"""A delivery under the hands of several: runs at once, operators, and an endpoint that left."""

from __future__ import annotations

import hashlib
import threading

import pytest

from tests.handlers.by_hand import alerts, run, state
from tests.webhooks.receivers import Receiver, answer
from tests.webhooks.world import endpoint, one_delivery, rows, settings
from vpay_tasks.core.job import Again, Answer, Done
from vpay_tasks.handlers.context import Context
from vpay_tasks.webhooks.endpoints import Endpoints


def test_a_410_ends_the_delivery_and_pauses_the_endpoint_with_one_alert(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(410)]
    first = one_delivery(ctx)
    second = one_delivery(ctx)
    assert run(ctx, first) == Done()
    assert run(ctx, second) == Done()
    found = rows(ctx.db, "SELECT DISTINCT state, attempts FROM vpay.webhook_deliveries")
    assert found == [("gone", 1)]
    assert rows(ctx.db, "SELECT lane, paused FROM vpay.lanes") == [("acme/main", True)]
    assert alerts(caplog) == ["endpoint_gone"]


def test_a_410_from_an_endpoint_that_was_resumed_meanwhile_is_a_failed_attempt(
    ctx: Context, receiver: Receiver
) -> None:
    receiver.answers = [answer(410)]

    def resume() -> None:
        rows(
            ctx.db,
            "INSERT INTO vpay.lanes (queue, lane, changed_at)"
            " VALUES ('webhooks', 'acme/main', clock_timestamp())",
        )

    receiver.before_answer = resume
    assert isinstance(run(ctx, one_delivery(ctx)), Again)
    assert state(ctx) == ("pending", 1, 410)
    assert rows(ctx.db, "SELECT paused FROM vpay.lanes") == [(False,)]
    assert len(rows(ctx.db, "SELECT id FROM vpay.delivery_attempts")) == 1


def test_a_410_from_an_address_that_was_left_meanwhile_is_a_failed_attempt(
    ctx: Context, receiver: Receiver
) -> None:
    receiver.answers = [answer(410)]
    moved = Endpoints(settings(endpoint("http://127.0.0.1:9/elsewhere")))

    def move() -> None:
        ctx.endpoints._by_merchant = moved._by_merchant

    receiver.before_answer = move
    assert isinstance(run(ctx, one_delivery(ctx)), Again)
    assert state(ctx) == ("pending", 1, 410)
    assert rows(ctx.db, "SELECT lane FROM vpay.lanes") == []


def both_at_once(ctx: Context, receiver: Receiver, delivery_id: str) -> list[Answer | None]:
    """Two runs of one delivery, both in the receiver's hands before it answers either."""
    barrier = threading.Barrier(2)

    def meet() -> None:
        barrier.wait()

    receiver.before_answer = meet
    answers: list[Answer | None] = []
    threads = [
        threading.Thread(target=lambda: answers.append(run(ctx, delivery_id))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def stamped_delivery(ctx: Context) -> str:
    delivery_id = one_delivery(ctx)
    digest = hashlib.sha256(rows(ctx.db, "SELECT body FROM vpay.events")[0][0]).digest()
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET digest = %s, digest_rev = 1", digest)
    return delivery_id


def test_of_two_runs_that_fail_at_once_one_rung_is_taken(ctx: Context, receiver: Receiver) -> None:
    receiver.answers = [answer(500)]
    both_at_once(ctx, receiver, stamped_delivery(ctx))
    assert state(ctx) == ("pending", 1, 500)
    logged = rows(ctx.db, "SELECT counted FROM vpay.delivery_attempts ORDER BY counted")
    assert logged == [(False,), (True,)]


def test_a_2xx_wins_over_a_failure_of_the_same_attempt(ctx: Context, receiver: Receiver) -> None:
    receiver.answers = [answer(500), answer(200)]
    both_at_once(ctx, receiver, stamped_delivery(ctx))
    assert state(ctx) == ("delivered", 1, 200)
