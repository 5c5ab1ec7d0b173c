"""What the egress guard's refusals mean for a delivery: over at once, or tried again."""

from __future__ import annotations

import pytest

from tests.handlers.by_hand import alerts, make_due, run, state
from tests.webhooks.receivers import Receiver
from tests.webhooks.world import (
    MERCHANT,
    append_many,
    context,
    endpoint,
    one_delivery,
    rows,
    settings,
)
from vpay_tasks.core.job import Again, Done
from vpay_tasks.handlers.context import Context
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints

NOWHERE = endpoint("http://name.invalid/")


def guarded(database: Database, *endpoints: dict[str, object]) -> Context:
    return context(database, Endpoints(settings(*endpoints, egress={})))


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://127.0.0.1:PORT/", "ADDR_LOOPBACK"),
        ("http://127.1:PORT/", "HOST_NUMERIC"),
        ("https://u:p@hooks.example.com/", "USERINFO"),
    ],
)
def test_a_url_that_is_refused_as_written_exhausts_the_delivery_at_once(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture, url: str, kind: str
) -> None:
    delivery_id = one_delivery(ctx)
    port = receiver.url.split(":")[2].partition("/")[0]
    strict = guarded(ctx.db, endpoint(url.replace("PORT", port)))
    assert run(strict, delivery_id) == Done()
    assert run(strict, delivery_id) == Done()
    assert (receiver.seen, state(ctx)) == ([], ("exhausted", 1, None))
    assert rows(ctx.db, "SELECT excerpt, address, digest FROM vpay.delivery_attempts") == [
        (f"ssrf_blocked: {kind}", None, None)
    ]
    assert alerts(caplog) == ["delivery_exhausted"]
    assert "127." not in caplog.text


def test_a_name_that_leads_nowhere_walks_the_ladder_and_alerts_once(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    delivery_id = one_delivery(ctx)
    lost = context(ctx.db, Endpoints(settings(NOWHERE)))
    for number in (1, 2):
        assert isinstance(run(lost, delivery_id), Again)
        assert state(ctx) == ("pending", number, None)
        make_due(ctx)
    ((excerpt,),) = rows(ctx.db, "SELECT last_excerpt FROM vpay.webhook_deliveries")
    assert "dns_failed" in excerpt
    assert alerts(caplog) == ["endpoint_name"]
    assert run(ctx, delivery_id) == Done()  # the name is back: nothing was lost
    assert state(ctx) == ("delivered", 3, 200)
    assert len(receiver.seen) == 1


def test_many_deliveries_to_one_dead_name_alert_once_and_anew_after_it_was_well(
    database: Database, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = context(database, Endpoints(settings(NOWHERE)))
    append_many(database, 3)
    assert fanout.drain(database, ctx.endpoints).deliveries == 3
    for (delivery_id,) in rows(database, "SELECT id FROM vpay.webhook_deliveries"):
        assert isinstance(run(ctx, delivery_id), Again)
    assert alerts(caplog) == ["endpoint_name"]
    found = ctx.endpoints.get(MERCHANT, "main")
    assert found is not None
    assert not ctx.endpoints.is_new_trouble(found, None)
    make_due(ctx)
    run(ctx, delivery_id)
    assert alerts(caplog) == ["endpoint_name", "endpoint_name"]
