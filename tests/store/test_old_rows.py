"""A year of traffic behind it, a claim and a fan-out read what they read on the first day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.store.plans import claiming, explain
from vpay_tasks.store import claims, events, sql
from vpay_tasks.store.db import Connection, connect

pytestmark = pytest.mark.all

OLD = (
    "INSERT INTO vpay.events (id, merchant_id, type, object_id, livemode, body, fanout_state,"
    " list_seq, created_at) SELECT 'old' || i, 'm', 'payment_intent.succeeded', 'o', false, '{}',"
    " 'done', i, now() - interval '1 y' FROM generate_series(1, 10000000) AS i",
    "SELECT setval('vpay.event_list_seq', 10000000)",
    "INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id, state, ended_at)"
    " SELECT 'd' || i, 'old' || i, 'm', 'e', 'delivered', now()"
    " FROM generate_series(1, 2000000) AS i",
)
NEW = (
    "INSERT INTO vpay.events (id, merchant_id, type, object_id, livemode, body)"
    " SELECT 'new' || i, 'm', 'payment_intent.succeeded', 'o', false, '{}'"
    " FROM generate_series(1, 50) AS i",
    "INSERT INTO vpay.workers (id, host, pid, queues, threads, seen_at)"
    " VALUES ('w', 'h', 1, ARRAY['plain'], 8, now() + interval '1 h')",
    "INSERT INTO vpay.jobs (queue, kind, payload)"
    " SELECT 'plain', 'k', '{}' FROM generate_series(1, 100)",
)
IDS = [f"new{n}" for n in range(1, 51)]
FLIP = {
    "event_ids": IDS,
    "for_events": IDS,
    "endpoint_ids": ["e"] * 50,
    "delivery_ids": [f"fresh{n}" for n in range(50)],
    "queue": "webhooks",
    "kind": "deliver_webhook",
    "priority": 2,
    "key_prefix": "webhook:",
}
CASES: dict[str, tuple[sql.Statement, dict[str, Any]]] = {
    "claim": (claims.SQL["claim"], claiming("plain")),
    "fan-out page": (events.SQL["page"], {"page": 50}),
    "fan-out flip": (events.SQL["flip"], FLIP),
}


def looked_at(connection: Connection) -> dict[str, int]:
    """Pages that each statement looks at; nothing is read from end to end."""
    found = {}
    for name, (statement, params) in CASES.items():
        for mode in ("force_custom_plan", "force_generic_plan"):
            plan = explain(connection, statement, params, cache=mode)
            assert "events" not in plan.read_whole, (name, mode)
            assert "webhook_deliveries" not in plan.read_whole, (name, mode)
            found[f"{name}, {mode}"] = plan.buffers
    return found


@pytest.fixture
def connection(clone: Callable[[], AbstractContextManager[str]]) -> Iterator[Connection]:
    with clone() as url, connect(url, application="tests") as connection:
        connection.prepare_threshold = None
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET session_replication_role = replica")
        for table in ("events", "webhook_deliveries"):
            connection.execute(f"ALTER TABLE vpay.{table} SET (autovacuum_enabled = off)".encode())
        yield connection


def test_ten_million_old_events_cost_a_level_of_an_index_and_no_more(
    connection: Connection,
) -> None:
    few = OLD[0].replace("10000000", "100000")
    for statement in (few, "SELECT setval('vpay.event_list_seq', 100000)", *NEW):
        connection.execute(statement.encode())
    connection.execute("VACUUM (ANALYZE) vpay.events, vpay.webhook_deliveries, vpay.jobs")
    before = looked_at(connection)
    connection.execute("DELETE FROM vpay.events")
    connection.execute("VACUUM vpay.events")
    for statement in (*OLD, *NEW[:1]):
        connection.execute(statement.encode())
    connection.execute("VACUUM (ANALYZE) vpay.events, vpay.webhook_deliveries, vpay.jobs")
    after = looked_at(connection)
    # A page or two more for each row that is looked up or entered: the index is deeper.
    assert {name: pages for name, pages in after.items() if pages > before[name] + 500} == {}
