"""A database in which every promise holds, made by the product's own functions, and the journals
that belong to it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.factories import a_job, a_worker, started
from tests.invariants import install
from tests.payment_kit import MERCHANT, make_charge
from tests.webhooks import world
from vpay_tasks.core.answers import Failed, Succeeded
from vpay_tasks.core.charge import Charge, FailureCode
from vpay_tasks.core.settling import FINISHED, Ending, Verb
from vpay_tasks.payments import settlement
from vpay_tasks.store import deliveries, settles
from vpay_tasks.store.db import Database, connect
from vpay_tasks.webhooks import endpoints, fanout
from vpay_tasks.webhooks.recording import record

ENDPOINT = (MERCHANT, "main")


@dataclass
class Whole:
    """`connection` is a superuser's, to break it with; `evidence` what belongs to the rows."""

    database: Database
    connection: psycopg.Connection[Any]
    paid: Charge
    declined: Charge
    live: Charge
    evidence: dict[str, Any]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()


def make(database: Database, dsn: str) -> Whole:
    connection = psycopg.connect(dsn, autocommit=True, application_name="tests invariants")
    install(connection)
    paid, declined, live = (make_charge(database) for _ in range(3))
    with database.transaction() as tx:
        settlement.settle(tx, paid, Succeeded("77"))
    with database.transaction() as tx:
        settlement.settle(tx, declined, Failed(FailureCode.PAYER_TIMEOUT, "EXPIRED"))
    _deliver(database)
    _run_jobs(database, dsn)
    # Their charges are over.
    worker = connect(dsn, application="vpay worker w_test settle")
    for job in started(worker, queue="payments", worker="w_test"):
        if live.id not in str(job.payload):
            settles.settle(worker, [settles.Settle(job.id, job.lease, FINISHED)])
        else:
            settles.settle(worker, [settles.Settle(job.id, job.lease, Ending(Verb.AGAIN, 600.0))])
    worker.close()
    return Whole(database, connection, paid, declined, live, _evidence(connection, paid, live))


def _deliver(database: Database) -> None:
    """Both events to the one endpoint, each answered 200."""
    known = endpoints.Endpoints(world.settings(world.endpoint(), merchant=MERCHANT))
    assert fanout.drain(database, known).deliveries == 2
    with database.connection() as connection:
        ids = connection.execute("SELECT id FROM vpay.webhook_deliveries").fetchall()
        for (id_,) in ids:
            found = deliveries.read(connection, id_)
            assert found is not None
            digest = hashlib.sha256(found.body).digest()
            assert deliveries.stamp(connection, found, digest)
            attempt = deliveries.Attempt(
                number=1,
                begun=found.now,
                seconds=0.1,
                status=200,
                excerpt="",
                digest=digest,
                ladder_from=found.ladder_from,
            )
            assert record(database, found, attempt, state="delivered")


def _run_jobs(database: Database, dsn: str) -> None:
    """One job that has ended, and one that has failed once."""
    for queue in ("default", "payments"):
        a_worker(database, queues=(queue,))
    ended, failed = a_job(database), a_job(database)
    endings = {ended: FINISHED, failed: Ending(Verb.RETRY, 600.0, "it raised")}
    with connect(dsn, application="vpay worker w_test settle") as connection:
        for job in started(connection, worker="w_test"):
            assert all(
                settles.settle(connection, [settles.Settle(job.id, job.lease, endings[job.id])])
            )


def _evidence(connection: psycopg.Connection[Any], paid: Charge, live: Charge) -> dict[str, Any]:
    """The journals as the outside would have kept them."""
    events = connection.execute("SELECT id, encode(sha256(body), 'hex') FROM vpay.events")
    posts = [
        {
            "kind": "delivery",
            "merchant": MERCHANT,
            "endpoint": "main",
            "event": id_,
            "sha256": sha256,
            "verified": True,
            "why": "",
            "status": 200,
        }
        for id_, sha256 in events.fetchall()
    ]
    asked = {"kind": "request", "op": "submit", "reference": paid.provider_reference_id}
    effects = [
        {"kind": "effect", "effect": what, "reference": paid.provider_reference_id}
        for what in ("prompt", "moved")
    ]
    return {
        "rail": [asked, *effects],
        "receivers": posts,
        "producer": [
            {"order": "1", "what": "intent", "id": paid.payment_intent_id, "how": "committed"},
            {"order": "1", "what": "charge", "id": paid.id, "how": "committed"},
            {"order": "2", "what": "charge", "id": "", "how": "ambiguous"},
        ],
        "vendors": [],
        "grants": {},
        "endpoints": [ENDPOINT],
        "rungs": 1,
    }
