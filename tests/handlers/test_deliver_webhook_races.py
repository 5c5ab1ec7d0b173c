"""A delivery under the hands of several: runs at once, operators, and an endpoint that left."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import Eventually
from tests.handlers.by_hand import alerts, run, state
from tests.webhooks.receivers import Receiver, answer
from tests.webhooks.world import endpoint, one_delivery, rows, settings
from vpay_tasks.config import Settings
from vpay_tasks.core.job import Again, Answer, Done
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import deliveries
from vpay_tasks.store.db import Connection
from vpay_tasks.store.deliveries import Attempt
from vpay_tasks.webhooks.endpoints import Endpoints


def test_a_410_ends_the_delivery_and_pauses_the_endpoint_with_one_alert(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(410)]
    at_once = [one_delivery(ctx), one_delivery(ctx)]
    waiting_one = one_delivery(ctx)
    assert in_flight_at_once(ctx, receiver, at_once) == [Done(), Done()]
    found = rows(ctx.db, "SELECT state, attempts FROM vpay.webhook_deliveries ORDER BY state")
    assert found == [("gone", 1), ("gone", 1), ("pending", 0)]
    assert rows(ctx.db, "SELECT lane, paused FROM vpay.lanes") == [("acme/main", True)]
    assert alerts(caplog) == ["endpoint_gone"]
    assert run(ctx, waiting_one) == Again(1.0)  # claimed before the pause
    assert len(receiver.seen) == 2


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


@pytest.mark.parametrize(
    "tables",
    [settings(endpoint("http://127.0.0.1:9/elsewhere")), settings()],
    ids=["moved", "gone"],
)
def test_a_410_from_an_address_that_was_left_meanwhile_is_a_failed_attempt(
    ctx: Context, receiver: Receiver, tables: Settings
) -> None:
    receiver.answers = [answer(410)]
    moved = Endpoints(tables)

    def move() -> None:
        ctx.endpoints._by_merchant = moved._by_merchant

    receiver.before_answer = move
    assert isinstance(run(ctx, one_delivery(ctx)), Again)
    assert state(ctx) == ("pending", 1, 410)
    assert rows(ctx.db, "SELECT lane FROM vpay.lanes") == []


def in_flight_at_once(
    ctx: Context, receiver: Receiver, delivery_ids: list[str]
) -> list[Answer | None]:
    """A run for each, all in the receiver's hands before it answers any."""
    barrier = threading.Barrier(len(delivery_ids))

    def meet() -> None:
        barrier.wait()

    receiver.before_answer = meet
    answers: list[Answer | None] = []

    def one(delivery_id: str) -> None:
        answers.append(run(ctx, delivery_id))

    threads = [threading.Thread(target=one, args=(id_,)) for id_ in delivery_ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    receiver.before_answer = lambda: None
    return answers


def both_at_once(ctx: Context, receiver: Receiver, delivery_id: str) -> list[Answer | None]:
    """Two runs of one delivery."""
    return in_flight_at_once(ctx, receiver, [delivery_id] * 2)


def stamped_delivery(ctx: Context) -> str:
    delivery_id = one_delivery(ctx)
    digest = hashlib.sha256(rows(ctx.db, "SELECT body FROM vpay.events")[0][0]).digest()
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET digest = %s, digest_rev = 1", digest)
    return delivery_id


def test_of_two_runs_that_fail_at_once_one_rung_is_taken(ctx: Context, receiver: Receiver) -> None:
    receiver.answers = [answer(500)]
    found = both_at_once(ctx, receiver, stamped_delivery(ctx))
    assert state(ctx) == ("pending", 1, 500)
    loser, winner = sorted(one.after for one in found if isinstance(one, Again))
    assert loser == 1.0
    assert 10 <= winner <= 11
    logged = rows(ctx.db, "SELECT counted FROM vpay.delivery_attempts ORDER BY counted")
    assert logged == [(False,), (True,)]


def test_a_2xx_wins_over_a_failure_of_the_same_attempt(ctx: Context, receiver: Receiver) -> None:
    receiver.answers = [answer(500), answer(200)]
    both_at_once(ctx, receiver, stamped_delivery(ctx))
    assert state(ctx) == ("delivered", 1, 200)


def test_of_two_last_failures_at_once_one_ends_the_delivery_with_one_alert(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(500)]
    delivery_id = stamped_delivery(ctx)
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET attempts = 7")
    found = both_at_once(ctx, receiver, delivery_id)
    assert sorted(found, key=repr) == [Again(1.0), Done()]
    assert state(ctx) == ("exhausted", 8, 500)
    assert alerts(caplog) == ["delivery_exhausted"]


def overtake(ctx: Context, delivery_id: str, to: deliveries.State) -> None:
    """What a run that slept behind its POST records when it wakes: the first attempt."""
    late = Attempt(number=1, begun=1_764_000_000.0, seconds=0.1, status=500, excerpt="late")
    with ctx.db.connection() as connection:
        delay = 10.0 if to == "pending" else None
        assert deliveries.record(connection, delivery_id, late, state=to, delay=delay).counted


@pytest.mark.parametrize("to", ["pending", "exhausted"])
@pytest.mark.parametrize("status", [200, 302, 410, 500])
def test_a_job_ends_only_by_a_record_that_counted_or_after_its_delivery(
    ctx: Context, receiver: Receiver, status: int, to: deliveries.State
) -> None:
    receiver.answers = [answer(status)]
    delivery_id = one_delivery(ctx)
    receiver.before_answer = lambda: overtake(ctx, delivery_id, to)
    wins = status == 200 and to == "pending"
    assert run(ctx, delivery_id) == (Done() if wins else Again(1.0))
    assert rows(ctx.db, "SELECT count(*) FROM vpay.delivery_attempts WHERE counted") == [
        (1 + wins,)
    ]
    ended = state(ctx)[0] != "pending"
    assert (run(ctx, delivery_id) == Done()) is ended
    assert len(receiver.seen) == 1


@contextmanager
def held(ctx: Context, delivery_id: str) -> Iterator[Connection]:
    """The delivery's row under the lock of another transaction, which then commits."""
    with ctx.db.transaction() as tx:
        query = b"SELECT 1 FROM vpay.webhook_deliveries WHERE id = %s FOR UPDATE"
        tx.execute(query, (delivery_id,))
        yield tx


def waiting(ctx: Context) -> int:
    """How many sessions wait for a lock."""
    query = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )
    return len(rows(ctx.db, query))


def test_of_two_runs_that_would_stamp_one_posts(
    ctx: Context, receiver: Receiver, eventually: Eventually
) -> None:
    delivery_id = one_delivery(ctx)
    found: list[Answer | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(run(ctx, delivery_id))) for _ in range(2)
    ]
    with held(ctx, delivery_id):
        for thread in threads:
            thread.start()
        eventually(lambda: waiting(ctx) == 2)
    for thread in threads:
        thread.join()
    assert sorted(found, key=repr) == [Again(1.0), Done()]
    assert len(receiver.seen) == 1


def test_a_run_that_was_overtaken_poisons_nothing(
    ctx: Context,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    eventually: Eventually,
) -> None:
    delivery_id = stamped_delivery(ctx)
    rows(ctx.db, "UPDATE vpay.events SET body = '{}'")
    found: list[Answer | None] = []
    thread = threading.Thread(target=lambda: found.append(run(ctx, delivery_id)))
    with held(ctx, delivery_id) as tx:
        thread.start()
        eventually(lambda: waiting(ctx) == 1)
        tx.execute("UPDATE vpay.webhook_deliveries SET attempts = attempts + 1")
    thread.join()
    assert found == [Again(1.0)]
    assert state(ctx) == ("pending", 1, None)
    assert (alerts(caplog), receiver.seen) == ([], [])
