"""A process that is stopped inside a delivery, and wakes behind another's."""

from __future__ import annotations

import os
import signal
import threading

import psycopg
import pytest

from tests.conftest import Eventually
from tests.e2e.fleet import Fleet
from tests.webhooks.receivers import answer, receiving
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


def only_endpoint(fleet: Fleet, database: Database, url: str) -> None:
    """acme/main at `url`, and one event on its way to it."""
    table = endpoint(url)
    fleet.config["merchants"] = [{"id": "acme", "endpoints": [table]}]
    append_many(database, 1)
    assert fanout.drain(database, Endpoints(settings(table))).deliveries == 1


@pytest.mark.more(seconds=15)
def test_a_worker_stopped_behind_its_post_that_wakes_behind_anothers_changes_nothing(
    fleet: Fleet, database: Database, eventually: Eventually
) -> None:
    fleet.config["worker"]["run_lease"] = 2.0
    may_answer = threading.Event()
    with receiving(answer(500), answer(200)) as receiver:
        only_endpoint(fleet, database, receiver.url)

        def first_waits() -> None:
            if len(receiver.seen) == 1:
                may_answer.wait(60)

        receiver.before_answer = first_waits
        fleet.dispatcher()
        first = fleet.workers(threads=2, queues=["webhooks"])
        eventually(lambda: len(receiver.seen) == 1)
        (child,) = first.children()
        os.kill(child, signal.SIGSTOP)
        fleet.workers(threads=2, queues=["webhooks"])
        query = "SELECT state, attempts FROM vpay.webhook_deliveries"
        eventually(lambda: rows(database, query) == [("delivered", 1)])
        may_answer.set()
        os.kill(child, signal.SIGCONT)
        log = "SELECT status, counted FROM vpay.delivery_attempts ORDER BY id"
        eventually(lambda: len(rows(database, log)) == 2)
    assert rows(database, log)[0] == (200, True)
    assert rows(database, log)[1][1] is False
    assert rows(database, query) == [("delivered", 1)]
    assert len(receiver.seen) == 2


def test_a_worker_killed_behind_its_post_is_followed_by_the_same_event_and_bytes(
    fleet: Fleet, database: Database, eventually: Eventually
) -> None:
    may_answer = threading.Event()
    with receiving() as receiver:
        only_endpoint(fleet, database, receiver.url)

        def first_waits() -> None:
            if len(receiver.seen) == 1:
                may_answer.wait(60)

        receiver.before_answer = first_waits
        fleet.dispatcher()
        first = fleet.workers(threads=2, queues=["webhooks"])
        eventually(lambda: len(receiver.seen) == 1)
        first.signal_group(signal.SIGKILL)
        fleet.workers(threads=2, queues=["webhooks"])
        query = "SELECT state, attempts FROM vpay.webhook_deliveries"
        eventually(lambda: rows(database, query) == [("delivered", 1)])
        may_answer.set()
    one, two = receiver.seen
    assert one.body == two.body
    for name in ("webhook-id", "Vpay-Event-Id", "Vpay-Attempt"):
        assert one.headers[name] == two.headers[name]
