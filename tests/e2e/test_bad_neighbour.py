"""One endpoint that never answers, with a backlog of its own, beside everybody else."""

from __future__ import annotations

import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from tests.webhooks.receivers import answer, never, receiving
from tests.webhooks.world import append, endpoint, rows
from vpay_tasks.store.db import Database

BACKLOG = 100_000
HEALTHY = 30
EACH = 4
THREADS = 8

QUEUE_UP = (
    "INSERT INTO vpay.events (id, merchant_id, type, object_id, livemode, body, fanout_state,"
    " list_seq) SELECT 'evt_bad' || i, 'bad', 'payment_intent.succeeded', 'o', false, '{}',"
    f" 'done', nextval('vpay.event_list_seq') FROM generate_series(1, {BACKLOG}) AS i",
    "INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id)"
    f" SELECT 'del_bad' || i, 'evt_bad' || i, 'bad', 'main' FROM generate_series(1, {BACKLOG})"
    " AS i",
    "INSERT INTO vpay.jobs (queue, kind, dedupe_key, lane, due, payload)"
    " SELECT 'webhooks', 'deliver_webhook', 'webhook:del_bad' || i, 'bad/main', true,"
    f" jsonb_build_object('delivery_id', 'del_bad' || i) FROM generate_series(1, {BACKLOG}) AS i",
)


def of_bad(database: Database, state: str) -> int:
    query = "SELECT count(*) FROM vpay.webhook_deliveries WHERE merchant_id = 'bad' AND state = %s"
    ((count,),) = rows(database, query, state)
    return int(count)


def delivered_to_others(database: Database) -> int:
    """And at each look the neighbour holds half of the threads at most."""
    query = "SELECT count(*) FROM vpay.jobs WHERE lane = 'bad/main' AND locked_at IS NOT NULL"
    assert rows(database, query)[0][0] <= THREADS // 2
    query = (
        "SELECT count(*) FROM vpay.webhook_deliveries"
        " WHERE merchant_id <> 'bad' AND state = 'delivered'"
    )
    ((count,),) = rows(database, query)
    return int(count)


@pytest.mark.more(seconds=60)
def test_a_hanging_endpoint_with_100000_deliveries_keeps_nobody_waiting_and_loses_none(
    fleet: Fleet, board: Board, database: Database, eventually: Eventually
) -> None:
    with receiving(never) as bad, receiving() as good:
        names = [f"m{n}" for n in range(HEALTHY)]
        urls = {"bad": bad.url, **dict.fromkeys(names, good.url)}
        fleet.config["merchants"] = [
            {"id": name, "endpoints": [endpoint(url)]} for name, url in urls.items()
        ]
        with database.connection() as connection:
            for statement in QUEUE_UP:
                connection.execute(statement.encode())
        fleet.dispatcher()
        fleet.workers(threads=THREADS, queues=["webhooks"])
        fleet.workers(threads=2, queues=["payments", "housekeeping"])
        # The neighbour holds all that it may: half of the threads.
        eventually(lambda: len(bad.seen) == THREADS // 2)
        with database.transaction() as tx:
            for name in names * EACH:
                append(tx, merchant_id=name)
        polls = [board.enqueue("in_batches", {"n": n}, queue="payments") for n in range(50)]
        eventually(lambda: delivered_to_others(database) == HEALTHY * EACH)
        eventually(lambda: sorted(board.runs("ended")) == polls)
        assert of_bad(database, "pending") == BACKLOG

        # Its circuit opens; what it costs from then on is a probe now and then.
        open_ = "SELECT circuit_trips > 0 FROM vpay.lanes WHERE lane = 'bad/main'"
        eventually(lambda: rows(database, open_) == [(True,)], within=60)
        assert of_bad(database, "pending") == BACKLOG
        assert len(bad.seen) <= 2 * THREADS
        with database.transaction() as tx:
            for name in names:
                append(tx, merchant_id=name)
        eventually(lambda: delivered_to_others(database) == HEALTHY * (EACH + 1))

        # It comes back: one probe, and the backlog goes on by itself.
        bad.answers = [answer(200)]
        rows(database, "UPDATE vpay.lanes SET circuit_until = now()")
        eventually(lambda: of_bad(database, "delivered") >= 100)
        assert rows(database, open_) == [(False,)]
        query = (
            "SELECT count(*) FROM vpay.webhook_deliveries"
            " WHERE merchant_id = 'bad' AND state IN ('pending', 'delivered')"
        )
        assert rows(database, query) == [(BACKLOG,)]
