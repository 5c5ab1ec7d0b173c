"""What a replay reads among 200,000 events and deliveries, of which it wants a few."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.store.plans import STATISTICS, explain
from vpay_tasks.store import replays, sql
from vpay_tasks.store.db import WALK_PLANS, Connection, connect
from vpay_tasks.store.replays import Mark

pytestmark = pytest.mark.more(seconds=15)

LOAD = (
    # Two merchants' events; the first one's are delivered to both of its endpoints but for
    # a hundred late ones, which its endpoint `z` never got.
    "INSERT INTO vpay.events (id, merchant_id, type, object_id, livemode, body, fanout_state,"
    " list_seq, created_at) SELECT 'ev' || i, 'm' || i % 2, 'payment_intent.succeeded', 'o',"
    " false, '{}', 'done', i, now() - (200000 - i) * interval '1 s'"
    " FROM generate_series(1, 200000) AS i",
    "INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id, state, ended_at,"
    " created_at) SELECT endpoint || i, 'ev' || i, 'm' || i % 2, endpoint,"
    " CASE WHEN i % 10000 = 0 THEN 'exhausted' ELSE 'delivered' END, now(),"
    " now() - (200000 - i) * interval '1 s'"
    " FROM generate_series(1, 200000) AS i, unnest(ARRAY['a', 'z']) AS endpoint"
    " WHERE endpoint = 'a' OR i <= 199800",
)
TYPES = ["payment_intent.succeeded"]
MISSED = {"merchant_id": "m0", "endpoint_id": "z", "types": TYPES, "page": 1_000}
MATCHING = {
    "merchant_id": None,
    "endpoint_id": None,
    "event_id": None,
    "states": None,
    "types": None,
    "since": None,
    "until": "2100-01-01T00:00:00Z",
    "after_merchant": "",
    "after_endpoint": "",
    "after_created": "1970-01-01T00:00:00Z",
    "after_id": "",
    "page": 100,
}
CASES: dict[str, tuple[sql.Statement, dict[str, Any], int]] = {
    # A thousand rows of the walk, each with a look-up by its key.
    "page_missed, at the front": (
        replays.SQL["page_missed"],
        {**MISSED, "after_created": "1970-01-01T00:00:00Z", "after_seq": 0},
        9_000,
    ),
    "page_missed, at the end": (
        replays.SQL["page_missed"],
        {**MISSED, "after_created": "1970-01-01T00:00:00Z", "after_seq": 199_000},
        9_000,
    ),
    "page_matching, all": (replays.SQL["page_matching"], MATCHING, 500),
    "page_matching, of the last endpoint": (
        replays.SQL["page_matching"],
        {**MATCHING, "merchant_id": "m1", "endpoint_id": "z"},
        500,
    ),
    "page_matching, of a type": (
        replays.SQL["page_matching"],
        {**MATCHING, "merchant_id": "m1", "endpoint_id": "z", "types": TYPES},
        1_000,
    ),
}


@pytest.fixture(scope="module", params=STATISTICS)
def big(
    request: pytest.FixtureRequest, clone: Callable[[], AbstractContextManager[str]]
) -> Iterator[Connection]:
    """The loaded database, analysed afterwards or not, on a line as a walk has it."""
    with clone() as url, connect(url, application="tests", plans=WALK_PLANS) as connection:
        connection.prepare_threshold = None
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET session_replication_role = replica")
        for table in ("events", "webhook_deliveries"):
            connection.execute(f"ALTER TABLE vpay.{table} SET (autovacuum_enabled = off)".encode())
        connection.execute("ANALYZE vpay.events, vpay.webhook_deliveries")
        for statement in LOAD:
            connection.execute(statement.encode())
        if request.param == "fresh":
            connection.execute("VACUUM (ANALYZE) vpay.events, vpay.webhook_deliveries")
        yield connection


@pytest.mark.parametrize("name", CASES)
def test_a_replay_reads_a_page_of_its_index_and_no_table(big: Connection, name: str) -> None:
    statement, params, buffers = CASES[name]
    if params.get("after_seq") == 199_000:
        query = "SELECT created_at FROM vpay.events WHERE seq = 199000"
        ((at,),) = big.execute(query).fetchall()
        params = {**params, "after_created": at}
    plan = explain(big, statement, params, cache="force_custom_plan")
    assert plan.read_whole == []
    assert plan.buffers <= buffers
    assert plan.sorted_rows <= 1_000
    assert plan.fetched <= 2_100


def test_the_walk_finds_the_few_that_were_missed_among_many(big: Connection) -> None:
    after: Mark | None = Mark(datetime(1970, 1, 1, tzinfo=UTC))
    found: list[str] = []
    pages = 0
    while after is not None:
        page = replays.page_missed(big, "m0", "z", TYPES, after)
        found, after, pages = found + page.ids, page.end, pages + 1
    assert found == [f"ev{i}" for i in range(199_802, 200_001, 2)]
    assert pages == 101
