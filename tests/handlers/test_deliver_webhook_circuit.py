"""Endpoints that don't answer at all, and who is told of them."""

from __future__ import annotations

import pytest

from tests.handlers.by_hand import alerts, make_due, run
from tests.webhooks.receivers import Receiver, answer, says
from tests.webhooks.world import (
    append_many,
    context,
    endpoint,
    one_delivery,
    rows,
    settings,
)
from vpay_tasks.config import MerchantTable, Settings
from vpay_tasks.core.job import Again, Done
from vpay_tasks.handlers.context import Context
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints

SILENT = says(b"")
"""The connection ends without a status line."""


def silent_ones(ctx: Context, receiver: Receiver, count: int) -> list[str]:
    """So many deliveries, each attempted once without an answer."""
    receiver.answers = [SILENT]
    ids = [one_delivery(ctx) for _ in range(count)]
    for id_ in ids:
        assert isinstance(run(ctx, id_), Again)
    return ids


def attempts(ctx: Context) -> int:
    ((found,),) = rows(ctx.db, "SELECT sum(attempts)::integer FROM vpay.webhook_deliveries")
    return int(found)


def probe_is_due(ctx: Context) -> None:
    rows(ctx.db, "UPDATE vpay.lanes SET circuit_until = now()")


def test_five_silences_of_any_deliveries_open_the_circuit_with_one_alert(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    silent_ones(ctx, receiver, 4)
    assert alerts(caplog) == []
    silent_ones(ctx, receiver, 1)
    assert alerts(caplog) == ["endpoint_circuit_open"]


def test_an_attempt_that_an_open_circuit_kept_back_costs_nothing(
    ctx: Context, receiver: Receiver
) -> None:
    ids = silent_ones(ctx, receiver, 5)
    make_due(ctx)
    fresh = one_delivery(ctx)
    for _ in range(2):
        assert run(ctx, fresh) == Again(1.0)
        assert run(ctx, ids[0]) == Again(1.0)
    assert (len(receiver.seen), attempts(ctx)) == (5, 5)
    assert rows(ctx.db, "SELECT count(*) FROM vpay.delivery_attempts") == [(5,)]


def test_a_silent_probe_alerts_nobody_again_and_an_answered_one_tells_that_it_is_over(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, *_ = silent_ones(ctx, receiver, 5)
    caplog.clear()
    make_due(ctx)
    probe_is_due(ctx)
    run(ctx, first)
    assert alerts(caplog) == []
    assert run(ctx, second) == Again(1.0)
    receiver.answers = [answer(500)]
    probe_is_due(ctx)
    run(ctx, second)
    assert alerts(caplog) == ["endpoint_circuit_closed"]
    receiver.answers = [answer(200)]
    make_due(ctx)
    assert [run(ctx, first), run(ctx, second)] == [Done(), Done()]
    assert alerts(caplog) == ["endpoint_circuit_closed"]


def test_a_410_closes_the_circuit_as_any_answer_does(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    first, *_ = silent_ones(ctx, receiver, 5)
    make_due(ctx)
    probe_is_due(ctx)
    receiver.answers = [answer(410)]
    assert run(ctx, first) == Done()
    assert rows(ctx.db, "SELECT circuit_trips, paused FROM vpay.lanes") == [(0, True)]
    assert alerts(caplog) == ["endpoint_circuit_open", "endpoint_circuit_closed", "endpoint_gone"]


def test_answers_between_silences_keep_it_closed(ctx: Context, receiver: Receiver) -> None:
    for _ in range(3):
        silent_ones(ctx, receiver, 4)
        receiver.answers = [answer(503)]
        run(ctx, one_delivery(ctx))
    assert rows(ctx.db, "SELECT silent, circuit_trips FROM vpay.lanes") == [(0, 0)]


@pytest.mark.parametrize(
    "tables", [settings(), settings(endpoint(secrets=[]))], ids=["gone", "no secret"]
)
def test_what_was_never_sent_says_nothing_about_the_receiver(
    ctx: Context, receiver: Receiver, tables: Settings
) -> None:
    without = context(ctx.db, Endpoints(tables))
    ids = [one_delivery(ctx) for _ in range(6)]
    for id_ in ids:
        run(without, id_)
    assert rows(ctx.db, "SELECT count(*) FROM vpay.lanes") == [(0,)]
    make_due(ctx)
    assert {type(run(ctx, id_)) for id_ in ids} == {Done}  # the rollout healed: at once


def test_a_paused_endpoints_claimed_jobs_post_nothing_and_resume_with_it(
    ctx: Context, receiver: Receiver
) -> None:
    id_ = one_delivery(ctx)
    rows(
        ctx.db,
        "INSERT INTO vpay.lanes (queue, lane, paused) VALUES ('webhooks', 'acme/main', true)",
    )
    assert run(ctx, id_) == Again(1.0)
    assert (receiver.seen, attempts(ctx)) == ([], 0)
    rows(ctx.db, "UPDATE vpay.lanes SET paused = false")
    assert run(ctx, id_) == Done()


def exhaust(ctx: Context, ids: list[str]) -> None:
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET attempts = 7 WHERE state = 'pending'")
    for id_ in ids:
        assert run(ctx, id_) == Done()


def test_an_endpoint_that_is_down_for_long_alerts_once_and_tells_each(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(500)]
    exhaust(ctx, [one_delivery(ctx) for _ in range(20)])
    assert alerts(caplog) == ["delivery_exhausted"]
    told = [getattr(record, "fields", {}) for record in caplog.records]
    lines = [fields for fields in told if fields.get("action") == "delivery_exhausted"]
    assert len({fields["delivery_id"] for fields in lines}) == 20
    assert {fields["merchant"] for fields in lines} == {"acme"}


def test_the_same_endpoint_id_of_two_merchants_alerts_for_each(
    database: Database, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(500)]
    table = settings(endpoint(receiver.url)).merchants[0].endpoints
    merchants = tuple(MerchantTable(id=id_, endpoints=table) for id_ in ("acme", "other"))
    ctx = context(database, Endpoints(Settings(merchants=merchants)))
    append_many(database, 4)
    rows(database, "UPDATE vpay.events SET merchant_id = 'other' WHERE mod(seq, 2) = 0")
    assert fanout.drain(database, ctx.endpoints).deliveries == 4
    exhaust(ctx, [id_ for (id_,) in rows(database, "SELECT id FROM vpay.webhook_deliveries")])
    assert alerts(caplog) == ["delivery_exhausted"] * 2


def test_a_second_outage_a_day_later_alerts_again(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(500)]
    exhaust(ctx, [one_delivery(ctx), one_delivery(ctx)])
    rows(ctx.db, "UPDATE vpay.lanes SET exhausted_told_at = now() - interval '1 day'")
    exhaust(ctx, [one_delivery(ctx), one_delivery(ctx)])
    assert alerts(caplog) == ["delivery_exhausted"] * 2
