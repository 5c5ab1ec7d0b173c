"""A process that is stopped inside a delivery, and wakes behind another's."""

from __future__ import annotations

import os
import signal

import psycopg

from tests.conftest import Eventually
from tests.e2e.fleet import Fleet
from tests.webhooks.receivers import receiving
from tests.webhooks.world import append_many, endpoint, rows, settings
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints

GATE = """
CREATE FUNCTION public.wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4711);
    RETURN NEW;
END $$;
CREATE TRIGGER held BEFORE UPDATE OF digest ON vpay.webhook_deliveries
    FOR EACH ROW EXECUTE FUNCTION public.wait_at_the_gate();
"""
"""Whoever stamps a digest waits until the test lets go."""


def test_a_worker_stopped_before_its_post_that_wakes_behind_anothers_posts_nothing(
    fleet: Fleet, database: Database, eventually: Eventually
) -> None:
    rows(database, GATE)
    with receiving() as receiver, psycopg.connect(database.url, autocommit=True) as gate:
        table = endpoint(receiver.url)
        fleet.config["worker"]["run_lease"] = 2.0
        fleet.config["merchants"] = [{"id": "acme", "endpoints": [table]}]
        append_many(database, 1)
        assert fanout.drain(database, Endpoints(settings(table))).deliveries == 1
        gate.execute("SELECT pg_advisory_lock(4711)")
        fleet.dispatcher()
        first = fleet.workers(threads=2, queues=["webhooks"])
        eventually(lambda: rows(database, "SELECT 1 FROM pg_locks WHERE NOT granted"))
        (child,) = first.children()
        os.kill(child, signal.SIGSTOP)
        gate.execute("SELECT pg_advisory_unlock(4711)")
        fleet.workers(threads=2, queues=["webhooks"])
        query = "SELECT state FROM vpay.webhook_deliveries"
        eventually(lambda: rows(database, query) == [("delivered",)])
        eventually(lambda: rows(database, "SELECT id FROM vpay.jobs WHERE kind LIKE 'd%%'") == [])
        # Its pulse would tell it soon; the post must not depend on who is faster.
        with database.transaction() as tx:
            tx.execute(b"SELECT 1 FROM vpay.workers FOR UPDATE")
            os.kill(child, signal.SIGCONT)
            eventually(lambda: first.said("settle_lost"))
    assert len([seen for seen in receiver.seen if seen.line]) == 1
    assert rows(database, "SELECT attempt, status FROM vpay.delivery_attempts") == [(1, 200)]
    assert rows(database, "SELECT state, attempts FROM vpay.webhook_deliveries") == [
        ("delivered", 1)
    ]
