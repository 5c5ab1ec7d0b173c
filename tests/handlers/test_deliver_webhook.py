"""One attempt of a delivery: real Postgres, real receivers, the job run by hand."""

from __future__ import annotations

import hashlib
import logging

import pytest
import standardwebhooks
import stripe

from tests.handlers.by_hand import alerts, make_due, run, state
from tests.webhooks.receivers import Receiver, answer, never, receiving, says
from tests.webhooks.world import (
    MERCHANT,
    SECRET,
    HandRun,
    append_many,
    context,
    endpoint,
    event_body,
    one_delivery,
    rows,
    settings,
)
from vpay_tasks.core.job import Again, Done, Park
from vpay_tasks.errors import DeadReason
from vpay_tasks.handlers.context import Context
from vpay_tasks.handlers.deliver_webhook import deliver_webhook
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout, verify
from vpay_tasks.webhooks.endpoints import Endpoints


def test_an_event_is_delivered_once_with_bytes_that_everybody_verifies(
    ctx: Context, receiver: Receiver
) -> None:
    delivery_id = one_delivery(ctx)
    assert run(ctx, delivery_id) == Done()
    (seen,) = receiver.seen
    assert seen.line == "POST /hooks?for=vpay HTTP/1.1"
    event_id = seen.headers["Vpay-Event-Id"]
    assert seen.body == event_body(event_id)
    assert verify(seen.body, seen.headers["Vpay-Signature"], SECRET).id == event_id
    by_stripe = stripe.Webhook.construct_event(seen.body, seen.headers["Stripe-Signature"], SECRET)
    assert by_stripe.id == event_id
    assert standardwebhooks.Webhook(SECRET).verify(seen.body, seen.headers)["id"] == event_id
    assert seen.headers["Vpay-Attempt"] == "1"
    assert seen.headers["Content-Type"].startswith("application/json")
    assert "vpay" in seen.headers["User-Agent"]
    assert state(ctx) == ("delivered", 1, 200)


def test_a_second_run_of_a_delivered_one_posts_nothing(ctx: Context, receiver: Receiver) -> None:
    delivery_id = one_delivery(ctx)
    assert run(ctx, delivery_id) == Done()
    assert run(ctx, delivery_id) == Done()
    assert len(receiver.seen) == 1


def test_a_delivery_that_is_not_there_is_done(ctx: Context) -> None:
    assert run(ctx, "del_none") == Done()


def test_a_crash_between_record_and_settle_does_not_post_again_before_its_time(
    ctx: Context, receiver: Receiver
) -> None:
    receiver.answers = [answer(500)]
    delivery_id = one_delivery(ctx)
    run(ctx, delivery_id)
    again = run(ctx, delivery_id)  # as if the first run had died behind its record
    assert isinstance(again, Again)
    assert 9 < again.after <= 11
    assert len(receiver.seen) == 1


def test_the_whole_ladder_is_eight_posts_of_the_same_bytes_and_one_alert(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(500)]
    delivery_id = one_delivery(ctx)
    rungs = (10, 30, 120, 600, 3_600, 21_600, 86_400)
    for number, rung in enumerate(rungs, start=1):
        again = run(ctx, delivery_id)
        assert isinstance(again, Again)
        assert rung <= again.after <= rung * 1.1
        assert state(ctx) == ("pending", number, 500)
        make_due(ctx)
    assert alerts(caplog) == []
    assert run(ctx, delivery_id) == Done()
    assert run(ctx, delivery_id) == Done()
    assert state(ctx) == ("exhausted", 8, 500)
    assert alerts(caplog) == ["delivery_exhausted"]
    assert len(receiver.seen) == 8
    assert len(set(receiver.bodies())) == 1
    assert [seen.headers["Vpay-Attempt"] for seen in receiver.seen] == [*"12345678"]
    logged = rows(
        ctx.db,
        "SELECT attempt, counted, status, next_attempt_at IS NULL"
        " FROM vpay.delivery_attempts ORDER BY id",
    )
    assert logged == [(n, True, 500, n == 8) for n in range(1, 9)]


def test_the_next_attempt_is_set_by_the_databases_clock(ctx: Context, receiver: Receiver) -> None:
    receiver.answers = [answer(500)]
    delivery_id = one_delivery(ctx)
    again = run(ctx, delivery_id)
    ((promised,),) = rows(
        ctx.db,
        "SELECT extract(epoch FROM next_attempt_at - attempted_at)::float8"
        " FROM vpay.webhook_deliveries",
    )
    assert isinstance(again, Again)
    assert promised == pytest.approx(again.after, abs=0.001)


def test_the_attempt_log_says_what_was_done(ctx: Context, receiver: Receiver) -> None:
    receiver.answers = [answer(503, b"busy\x00\x1b")]
    run(ctx, one_delivery(ctx))
    ((status, address, digest, keys, hash_, excerpt, waits),) = rows(
        ctx.db,
        "SELECT status, address, digest, key_ids, config_hash, excerpt,"
        " next_attempt_at > begun_at FROM vpay.delivery_attempts",
    )
    found = ctx.endpoints.get(MERCHANT, "main")
    assert found is not None
    assert (status, address, excerpt, waits) == (503, "127.0.0.1", r"busy\x00\x1b", True)
    assert digest == hashlib.sha256(receiver.seen[0].body).digest()
    assert (len(keys), hash_) == (1, found.config_hash)


def test_the_digest_is_stamped_before_the_receiver_is_asked(
    ctx: Context, receiver: Receiver
) -> None:
    stamped: list[tuple[object, ...]] = []

    def look() -> None:
        stamped.extend(rows(ctx.db, "SELECT digest, digest_rev FROM vpay.webhook_deliveries"))

    receiver.before_answer = look
    run(ctx, one_delivery(ctx))
    assert stamped == [(hashlib.sha256(receiver.seen[0].body).digest(), 1)]


def test_no_transaction_is_open_while_the_receiver_is_asked(
    ctx: Context, receiver: Receiver
) -> None:
    open_ones: list[tuple[object, ...]] = []

    def look() -> None:
        open_ones.extend(
            rows(
                ctx.db,
                "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
                " AND backend_type = 'client backend'",
            )
        )

    receiver.before_answer = look
    run(ctx, one_delivery(ctx))
    assert len(receiver.seen) == 1
    assert open_ones == []


def test_bytes_that_changed_under_one_revision_are_never_sent(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(500)]
    delivery_id = one_delivery(ctx)
    run(ctx, delivery_id)
    rows(ctx.db, 'UPDATE vpay.events SET body = \'{"id":"other"}\'')
    make_due(ctx)
    parked = run(ctx, delivery_id)
    assert isinstance(parked, Park)
    assert parked.reason is DeadReason.POISONED
    assert run(ctx, delivery_id) == Done()
    assert state(ctx) == ("poisoned", 1, 500)
    assert alerts(caplog) == ["delivery_poisoned"]
    assert len(receiver.seen) == 1


def test_an_erasures_newer_revision_is_stamped_anew_and_sent(
    ctx: Context, receiver: Receiver
) -> None:
    receiver.answers = [answer(500), answer(200)]
    delivery_id = one_delivery(ctx)
    run(ctx, delivery_id)
    rows(ctx.db, "UPDATE vpay.events SET body = '{\"erased\":true}', body_rev = 2")
    make_due(ctx)
    assert run(ctx, delivery_id) == Done()
    assert receiver.bodies()[1] == b'{"erased":true}'
    assert rows(ctx.db, "SELECT digest_rev FROM vpay.webhook_deliveries") == [(2,)]


@pytest.mark.parametrize(
    "tables",
    [
        settings(),
        settings(endpoint(secrets=[])),
        settings(endpoint(secrets=["", "whsec_"])),
        settings(endpoint(secrets=[{"secret": "s", "expires": "2020-01-01T00:00:00Z"}])),
    ],
    ids=["gone", "no secret", "blank secrets", "expired"],
)
def test_an_endpoint_that_cannot_be_signed_for_walks_the_ladder_unsent(
    ctx: Context, receiver: Receiver, tables: object
) -> None:
    delivery_id = one_delivery(ctx)
    without = context(ctx.db, Endpoints(tables))  # type: ignore[arg-type]
    again = run(without, delivery_id)
    assert isinstance(again, Again)
    assert 10 <= again.after <= 11
    assert receiver.seen == []
    assert state(ctx) == ("pending", 1, None)
    ((excerpt, digest),) = rows(ctx.db, "SELECT last_excerpt, digest FROM vpay.webhook_deliveries")
    assert excerpt.startswith("not sent: the endpoint ")
    assert digest is None
    make_due(ctx)
    assert run(ctx, delivery_id) == Done()  # the rollout healed
    assert state(ctx) == ("delivered", 2, 200)


def test_no_answer_is_an_attempt_with_the_whole_chain_in_its_log(
    database: Database, receiver: Receiver
) -> None:
    receiver.answers = [never]
    ctx = context(database, Endpoints(settings(endpoint(receiver.url))), attempt=0.3)
    assert isinstance(run(ctx, one_delivery(ctx)), Again)
    assert state(ctx) == ("pending", 1, None)
    ((excerpt,),) = rows(ctx.db, "SELECT excerpt FROM vpay.delivery_attempts")
    assert "ConnectionError" in excerpt
    assert "TimeoutError" in excerpt


@pytest.mark.parametrize(
    ("status", "header", "low", "high"),
    [
        (429, "25", 25, 25),
        (503, "3600", 30, 30),
        (429, "0", 10, 11),
        (429, "-5", 10, 11),
        (429, "99999999999999999999", 10, 11),
        (429, "soon", 10, 11),
        (500, "25", 10, 11),
    ],
)
def test_retry_after_only_lengthens_the_rung(
    ctx: Context, receiver: Receiver, status: int, header: str, low: float, high: float
) -> None:
    receiver.answers = [answer(status, b"", f"Retry-After: {header}")]
    again = run(ctx, one_delivery(ctx))
    assert isinstance(again, Again)
    assert low <= again.after <= high


def test_a_run_whose_lease_may_be_anothers_posts_nothing(ctx: Context, receiver: Receiver) -> None:
    job = HandRun(ctx.db, held=False)
    assert isinstance(deliver_webhook(job, ctx, delivery_id=one_delivery(ctx)), Again)
    assert [seen.line for seen in receiver.seen if seen.line] == []
    assert state(ctx) == ("pending", 0, None)


def test_the_secret_is_in_no_log_row_or_repr(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers = [answer(500, SECRET.encode()), says(SECRET.encode())]
    delivery_id = one_delivery(ctx)
    run(ctx, delivery_id)
    make_due(ctx)
    run(ctx, delivery_id)
    assert len(receiver.seen) == 2
    everything = [
        *rows(ctx.db, "SELECT d::text FROM vpay.webhook_deliveries AS d"),
        *rows(ctx.db, "SELECT a::text FROM vpay.delivery_attempts AS a"),
        *rows(ctx.db, "SELECT j::text FROM vpay.jobs AS j"),
        caplog.text,
        [record.__dict__ for record in caplog.records],
        ctx,
    ]
    assert SECRET.removeprefix("whsec_") not in repr(everything)


def test_deliveries_of_one_event_know_nothing_of_each_other(
    database: Database, receiver: Receiver
) -> None:
    with receiving(answer(500)) as broken:
        ctx = context(
            database,
            Endpoints(settings(endpoint(receiver.url), endpoint(broken.url, id="broken"))),
        )
        append_many(database, 1)
        fanout.drain(database, ctx.endpoints)
        found = rows(database, "SELECT id FROM vpay.webhook_deliveries ORDER BY endpoint_id")
        for (delivery_id,) in found:
            run(ctx, delivery_id)
    states = rows(
        database, "SELECT endpoint_id, state FROM vpay.webhook_deliveries ORDER BY endpoint_id"
    )
    assert states == [("broken", "pending"), ("main", "delivered")]
