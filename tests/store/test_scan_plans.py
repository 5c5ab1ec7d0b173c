"""What the backstop reads among 200,000 live charges, and charges' own lists with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.store.plans import STATISTICS, explain
from tests.store.test_plans import MODES
from vpay_tasks.store import scans, sql, vitals
from vpay_tasks.store.db import Connection, connect

pytestmark = pytest.mark.more(seconds=15)

LOAD = (
    # 200,000 live charges whose polls wait on the hourly rung, all touched in one instant;
    # among them 500 that have lost their poll, and 30 whose poll is parked.
    "INSERT INTO vpay.charges (id, payment_intent_id, provider_code, provider_reference_id,"
    " state, amount, currency, updated_at)"
    " SELECT 'ch_' || i, 'pi_' || i, 'mtn_momo', i,"
    " CASE WHEN i % 1000 = 0 THEN 'unresolved' ELSE 'pending' END, 1, 'EUR',"
    " now() - interval '1 h' FROM generate_series(1, 200000) AS i",
    "INSERT INTO vpay.jobs (queue, kind, payload, dedupe_key, run_at)"
    " SELECT 'payments', 'poll_charge', '{}', 'poll:ch_' || i, now() + interval '1 h'"
    " FROM generate_series(1, 200000) AS i WHERE i % 400 <> 0",
    "UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'by_operator'"
    " WHERE dedupe_key IN (SELECT 'poll:ch_' || i FROM generate_series(1, 30) AS i)",
    "UPDATE vpay.charges SET contradicted_at = now() WHERE id IN ('ch_5', 'ch_6')",
)
UNTOUCHED = {"untouched": 600.0, "prefix": "poll:", "queue": "payments"}
PAGE = {
    **UNTOUCHED,
    "after_at": "1970-01-01T00:00:00Z",
    "after_id": "",
    "page": 500,
    "kind": "poll_charge",
    "priority": 1,
}
CASES: dict[str, tuple[sql.Statement, dict[str, Any], int]] = {
    # 500 rows of the walk, and one look-up in the index of keys for each.
    "scan_live": (scans.SQL["scan_live"], PAGE, 3_500),
    "scan_live, behind a page": (
        scans.SQL["scan_live"],
        {**PAGE, "after_at": "now", "after_id": "ch_50000"},
        3_500,
    ),
    "scan_parked": (scans.SQL["scan_parked"], {**UNTOUCHED, "names": 20}, 300),
    "charges_in_doubt": (vitals.SQL["charges_in_doubt"], {"cap": 1000}, 1_100),
}


@pytest.fixture(scope="module", params=STATISTICS)
def big(
    request: pytest.FixtureRequest, clone: Callable[[], AbstractContextManager[str]]
) -> Iterator[Connection]:
    """The loaded database, analysed afterwards or not."""
    with clone() as url, connect(url, application="tests") as connection:
        connection.prepare_threshold = None
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET session_replication_role = replica")
        for table in ("jobs", "charges"):
            connection.execute(f"ALTER TABLE vpay.{table} SET (autovacuum_enabled = off)".encode())
        connection.execute("ANALYZE vpay.jobs, vpay.charges")
        for statement in LOAD:
            connection.execute(statement.encode())
        if request.param == "fresh":
            connection.execute("VACUUM (ANALYZE) vpay.jobs, vpay.charges")
        yield connection


@pytest.mark.parametrize("name", CASES)
def test_the_backstop_reads_a_page_and_no_table(big: Connection, name: str) -> None:
    statement, params, buffers = CASES[name]
    if params.get("after_at") == "now":
        ((at,),) = big.execute("SELECT max(updated_at) FROM vpay.charges").fetchall()
        params = {**params, "after_at": at}
    for mode in MODES:
        plan = explain(big, statement, params, cache=mode)
        assert plan.read_whole == []
        assert plan.buffers <= buffers
        assert plan.sorted_rows <= 500
        assert plan.thrown_away <= 500
        assert plan.fetched <= 1_000


def test_one_walk_finds_every_lost_poll_among_many(big: Connection) -> None:
    big.execute("BEGIN")
    try:
        found, page = 0, scans.LivePage(scans.START)
        while True:
            page = scans.scan_live(big, page.end, untouched=600)
            found += len(page.enqueued)
            if not page.full:
                break
    finally:
        big.execute("ROLLBACK")
    assert found == 500
