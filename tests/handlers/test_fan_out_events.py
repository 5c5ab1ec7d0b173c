"""The fan-out's job."""

from __future__ import annotations

from tests.webhooks.world import HandRun, append_many, context, endpoint, rows, settings
from vpay_tasks.core.job import Again, Done
from vpay_tasks.handlers.fan_out_events import fan_out_events
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoints


def test_it_runs_twice_and_makes_each_delivery_once(database: Database) -> None:
    ctx = context(database, Endpoints(settings(endpoint())))
    append_many(database, 3)
    assert fan_out_events(HandRun(database), ctx) == Done()
    assert fan_out_events(HandRun(database), ctx) == Done()
    assert len(rows(database, "SELECT id FROM vpay.webhook_deliveries")) == 3
    assert len(rows(database, "SELECT id FROM vpay.jobs")) == 3


def test_a_full_page_that_moved_runs_again_at_once(database: Database) -> None:
    ctx = context(database, Endpoints(settings(endpoint())))
    append_many(database, 101)
    assert fan_out_events(HandRun(database), ctx) == Again(0)
    assert fan_out_events(HandRun(database), ctx) == Done()
