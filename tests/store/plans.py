"""A database with a million jobs and a million events in every shape that hurts, and what
Postgres did for a statement there."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from psycopg import sql as composed

from vpay_tasks.store import sql
from vpay_tasks.store.db import Connection

QUEUES: Final = ["plain", "saturated", "waiting", "lanes", "paused"]

SMALL: Final = {"workers"}
"""A row per process: reading all of it is reading a page."""

TABLES: Final = (
    "jobs",
    "events",
    "webhook_deliveries",
    "customers",
    "payment_intents",
    "checkout_sessions",
    "charges",
    "idempotency_keys",
    "rate_limits",
    "inbox_events",
)
"""Those that are loaded."""

LEASED: Final = "'{}', gen_random_uuid(), now(), now()"
LOAD: Final = (
    # A backlog of a million rows, of which 2,000 are due.
    "INSERT INTO vpay.jobs (queue, kind, priority, run_at, payload, dedupe_key)"
    " SELECT 'plain', 'k', i % 4, now() + (i - 2000) * interval '1 s', '{}', 'k' || i"
    " FROM generate_series(1, 1000000) AS i",
    # A lane of 100,000 rows that is full, first in the walk; ten free lanes behind it.
    "INSERT INTO vpay.jobs (queue, kind, run_at, payload, lane, due)"
    " SELECT queue, 'k', now() - i * interval '1 ms', '{}', 'a', true"
    " FROM unnest(ARRAY['saturated', 'paused']) AS queue, generate_series(1, 100000) AS i",
    "INSERT INTO vpay.jobs (queue, kind, run_at, payload, lane, due)"
    " SELECT queue, 'k', now() - interval '1 s', '{}', 'b' || i, true"
    " FROM unnest(ARRAY['saturated', 'paused']) AS queue, generate_series(1, 10) AS i",
    "INSERT INTO vpay.jobs (queue, kind, payload, lease, locked_at, lease_until, locked_by, lane)"
    f" SELECT 'saturated', 'k', {LEASED} + interval '1 h', 'd', 'a' FROM generate_series(1, 4)",
    "INSERT INTO vpay.lanes (queue, lane, paused) VALUES ('paused', 'a', true)",
    # 100,000 lanes that wait on a ladder, and twenty that have come due.
    "INSERT INTO vpay.jobs (queue, kind, run_at, payload, lane)"
    " SELECT 'waiting', 'k', now() + i * interval '1 h', '{}', 'l' || i"
    " FROM generate_series(1, 100000) AS i",
    "INSERT INTO vpay.jobs (queue, kind, run_at, payload, lane)"
    " SELECT 'waiting', 'k', now() - i * interval '1 ms', '{}', 'x' || i"
    " FROM generate_series(1, 20) AS i",
    # 10,000 lanes due at once, each with an exception to the cap.
    "INSERT INTO vpay.jobs (queue, kind, run_at, payload, lane, due)"
    " SELECT 'lanes', 'k', now() - i * interval '1 ms', '{}', 'l' || (i % 10000), true"
    " FROM generate_series(1, 30000) AS i",
    "INSERT INTO vpay.lanes (queue, lane, cap)"
    " SELECT 'lanes', 'l' || i, 1 FROM generate_series(0, 9999) AS i",
    # What runs: 200 rows of live workers, 20 past their lease of one that is gone.
    "INSERT INTO vpay.jobs (queue, kind, payload, lease, locked_at, lease_until, started_at,"
    " locked_by)"
    f" SELECT 'running', 'k', {LEASED} + interval '1 h', now(), 'w_' || i % 4"
    " FROM generate_series(1, 200) AS i",
    "INSERT INTO vpay.jobs (queue, kind, payload, lease, locked_at, lease_until, started_at,"
    " locked_by)"
    f" SELECT 'gone', 'k', {LEASED} - interval '1 s', now(), 'w_gone' FROM generate_series(1, 20)",
    "INSERT INTO vpay.jobs (queue, kind, payload, parked_at, dead_reason)"
    " SELECT 'plain', 'other', '{}', now(), 'by_task' FROM generate_series(1, 100)",
    "INSERT INTO vpay.workers (id, host, pid, queues, threads, seen_at)"
    " SELECT 'w_' || i, 'h', 1, ARRAY['plain', 'saturated', 'waiting', 'lanes', 'paused'], 8,"
    " now() + interval '1 h' FROM generate_series(0, 3) AS i",
    "INSERT INTO vpay.workers (id, host, pid, queues, threads, holds_lock, seen_at)"
    " VALUES ('w_gone', 'h', 1, ARRAY['gone'], 8, true, now() - interval '1 h')",
    # A million events: all fanned out but the last fifty; deliveries of 100,000.
    "INSERT INTO vpay.events (id, merchant_id, type, object_id, livemode, body, fanout_state,"
    " list_seq)"
    " SELECT 'ev' || i, 'm', 'payment_intent.succeeded', 'o', false, '{}',"
    " CASE WHEN i <= 1000000 THEN 'done' ELSE 'pending' END,"
    " CASE WHEN i <= 1000000 THEN i END FROM generate_series(1, 1000050) AS i",
    "SELECT setval('vpay.event_list_seq', 1000000)",
    "INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id)"
    " SELECT 'd' || i, 'ev' || i, 'm', 'e' FROM generate_series(1, 100000) AS i",
    # What the sweeps walk: 100,000 of each, of which nothing is over but three.
    "INSERT INTO vpay.customers (id, merchant_id, last_used_at)"
    " SELECT 'cus_' || i, 'm', now() - CASE WHEN i <= 3 THEN interval '400 d' ELSE '1 d' END"
    " FROM generate_series(1, 100000) AS i",
    "INSERT INTO vpay.payment_intents (id, merchant_id, amount, currency, customer_id)"
    " SELECT 'pi_' || i, 'm', 1000, 'EUR', 'cus_' || i FROM generate_series(1, 100000) AS i",
    "INSERT INTO vpay.checkout_sessions (id, merchant_id, payment_intent_id, url, client_secret,"
    " expires_at) SELECT 'cs_' || i, 'm', 'pi_' || i, 'u', sha256(i::text::bytea),"
    " now() + CASE WHEN i <= 3 THEN interval '-1 h' ELSE '1 h' END"
    " FROM generate_series(1, 100000) AS i",
    "INSERT INTO vpay.charges (id, payment_intent_id, provider_code, provider_reference_id, state,"
    " amount, currency, failure_code, failure_raw) SELECT 'ch_' || i, 'pi_' || i, 'p', i::text,"
    " 'failed', 1000, 'EUR', 'payer_timeout', 'w' FROM generate_series(4, 100000) AS i",
    "INSERT INTO vpay.idempotency_keys (merchant_id, key, fingerprint, claim, lease_until,"
    " expires_at) SELECT 'm', i::text, sha256('x'), gen_random_uuid(), now() - interval '2 h',"
    " now() + CASE WHEN i <= 3 THEN interval '-1 h' ELSE '1 h' END"
    " FROM generate_series(1, 100000) AS i",
    "INSERT INTO vpay.rate_limits (id, scope, attempts, elapses_at)"
    " SELECT sha256(i::text::bytea), 's', 1, now() + interval '1 h'"
    " FROM generate_series(1, 100000) AS i",
    # 200,000 events of vendors: most are over, three for long; 1,000 wait, of which the oldest
    # ten have a job, and 100 are dead.
    "INSERT INTO vpay.inbox_events (vendor, event_id, type, lane, verified_by, digest, body, state,"
    " verdict, reason, received_at, ended_at)"
    " SELECT 'v', 'e' || i, 't', 'l' || i, 'b', sha256('x'), 'x', state,"
    " CASE state WHEN 'done' THEN 'DONE' END, CASE state WHEN 'dead' THEN 'x' END,"
    " now() - i * interval '1 s',"
    " CASE WHEN i <= 3 THEN now() - interval '40 d'"
    " WHEN state <> 'accepted' THEN now() - i * interval '1 s' END"
    " FROM (SELECT i, CASE WHEN i % 2000 = 0 THEN 'dead' WHEN i % 200 = 7 THEN 'accepted'"
    " ELSE 'done' END AS state FROM generate_series(1, 200000) AS i) AS made",
    "INSERT INTO vpay.jobs (queue, kind, payload, dedupe_key, run_at) SELECT 'inbox', 'k', '{}',"
    " 'inbox:' || id, now() + interval '1 h' FROM (SELECT id FROM vpay.inbox_events"
    " WHERE ended_at IS NULL ORDER BY received_at LIMIT 10) AS first",
    # 100,000 charges of two rails, each with a key.
    "INSERT INTO vpay.payment_intents (id, merchant_id, amount, currency)"
    " SELECT 'pk_' || i, 'm', 1, 'EUR' FROM generate_series(1, 100000) AS i",
    "INSERT INTO vpay.charges (id, payment_intent_id, provider_code, provider_reference_id,"
    " amount, currency, provider_ref_extra)"
    " SELECT 'ck_' || i, 'pk_' || i, 'rail' || i % 2, 'r' || i, 1, 'EUR',"
    " jsonb_build_object('callback_key', 'k' || i) FROM generate_series(1, 100000) AS i",
)


STATISTICS: Final = [
    # A process for each, or every process would load every database.
    pytest.param(when, marks=pytest.mark.xdist_group(f"{when} statistics"))
    for when in ("fresh", "stale")
]
"""Made after the tables were filled, or before."""


def load(connection: Connection, *, before: Callable[[], None] = lambda: None) -> None:
    """Fill it, with the statistics of an almost empty table: those that a queue has when a
    burst comes, until autovacuum looks again. `before` is called while it is almost empty."""
    connection.execute("SET statement_timeout = 0")
    for table in TABLES:
        connection.execute(f"ALTER TABLE vpay.{table} SET (autovacuum_enabled = off)".encode())
    connection.execute(
        "INSERT INTO vpay.jobs (queue, kind, payload)"
        " SELECT 'default', 'k', '{}' FROM generate_series(1, 100)"
    )
    connection.execute(f"ANALYZE {', '.join(f'vpay.{table}' for table in TABLES)}".encode())
    before()
    for statement in LOAD:
        connection.execute(statement.encode())


def leased(connection: Connection, rows: int) -> dict[str, Any]:
    """Ids and tokens of running rows, as start, renew and settle take them."""
    found = connection.execute(
        "SELECT id, lease FROM vpay.jobs WHERE queue = 'running' ORDER BY id LIMIT %s", (rows,)
    ).fetchall()
    return {"ids": [id_ for id_, _ in found], "leases": [str(lease) for _, lease in found]}


def claiming(queue: str, *, batch: int = 1) -> dict[str, Any]:
    """What one claim is asked with."""
    return {
        "queue": queue,
        "dispatcher": "d",
        "claim_lease": 30.0,
        "window": 1.25,
        "kinds": ["k"],
        "batches": [batch],
        "batch_max": batch,
        "lane_cap": 1,
        "lanes_max": 200,
        "lanes_first": False,
        "laned": True,
        "cursor": "",
    }


def some_uuid() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Plan:
    """What one execution did, from EXPLAIN (ANALYZE, BUFFERS)."""

    nodes: tuple[Mapping[str, Any], ...]

    @property
    def buffers(self) -> int:
        """Pages looked at, in all."""
        root = self.nodes[0]
        return int(root["Shared Hit Blocks"] + root["Shared Read Blocks"])

    @property
    def read_whole(self) -> list[str]:
        """Tables of ours that are read from end to end, or would have been."""
        return [
            node["Relation Name"]
            for node in self.nodes
            if node["Node Type"] == "Seq Scan"
            and node["Relation Name"] not in SMALL
            and not node["Relation Name"].startswith("pg_")
        ]

    @property
    def sorted_rows(self) -> int:
        """Rows of the largest sort."""
        sorts = [n for n in self.nodes if n["Node Type"] in {"Sort", "Incremental Sort"}]
        return max((int(n["Actual Rows"] * n["Actual Loops"]) for n in sorts), default=0)

    @property
    def thrown_away(self) -> int:
        """Rows of tables that were read and then dropped by a filter."""
        return sum(
            int(node.get(what, 0) * node["Actual Loops"])
            for node in self.nodes
            if node.get("Relation Name", "workers") not in SMALL
            for what in ("Rows Removed by Filter", "Rows Removed by Index Recheck")
        )

    @property
    def fetched(self) -> int:
        """The most rows that one scan of a table or index gave."""
        scans = [n for n in self.nodes if "Relation Name" in n or "Index Name" in n]
        return max((int(n["Actual Rows"] * n["Actual Loops"]) for n in scans), default=0)


def explain(
    connection: Connection, statement: sql.Statement, params: Mapping[str, Any], *, cache: str
) -> Plan:
    """Execute, look, roll back. `cache` is a plan_cache_mode: a statement that psycopg has
    prepared (at its sixth execution) runs under a generic plan sooner or later."""
    connection.execute("BEGIN")
    try:
        connection.execute(f"SET LOCAL plan_cache_mode = {cache}".encode())
        connection.execute(b"PREPARE probe AS " + statement.query)
        ((found,),) = connection.execute(_asked(statement, params, "probe")).fetchall()
    finally:
        connection.execute("ROLLBACK")
        connection.execute("DEALLOCATE ALL")
    return Plan(tuple(_walk(found[0]["Plan"])))


def keep(connection: Connection, statement: sql.Statement, params: Mapping[str, Any]) -> None:
    """Have `connection` prepare the statement, and make the plan that it will keep."""
    connection.execute(f"PREPARE {statement.name} AS ".encode() + statement.query)
    connection.execute(_asked(statement, params, statement.name, how="FORMAT JSON"))


def explain_kept(
    connection: Connection, statement: sql.Statement, params: Mapping[str, Any]
) -> Plan:
    """Execute by the plan that was kept, look, roll back."""
    connection.execute("BEGIN")
    try:
        ((found,),) = connection.execute(_asked(statement, params, statement.name)).fetchall()
    finally:
        connection.execute("ROLLBACK")
    return Plan(tuple(_walk(found[0]["Plan"])))


def _asked(
    statement: sql.Statement,
    params: Mapping[str, Any],
    prepared: str,
    how: str = "ANALYZE, BUFFERS, FORMAT JSON",
) -> composed.Composed:
    given = composed.SQL(", ").join(composed.Literal(params[name]) for name in statement.names)
    call = composed.SQL("({})").format(given) if statement.names else composed.SQL("")
    execute = composed.SQL("EXECUTE {}").format(composed.Identifier(prepared))
    return composed.SQL(f"EXPLAIN ({how}) ") + execute + call


def _walk(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)
