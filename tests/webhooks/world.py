"""A merchant with endpoints, events in the outbox, and a job that runs by hand."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from vpay_tasks.config import EndpointTable, LaddersTable, MerchantTable, Settings, WindowsTable
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import events
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MERCHANT = "acme"
_numbers = itertools.count(1)


def settings(*endpoints: dict[str, Any], merchant: str = MERCHANT, **more: Any) -> Settings:
    """A sandbox's, unless `more` says otherwise: the receivers are on this machine."""
    tables = tuple(EndpointTable.model_validate(endpoint) for endpoint in endpoints)
    merchants = (MerchantTable(id=merchant, endpoints=tables),)
    return Settings.model_validate(
        {"egress": {"allow_private_targets": True}, **more, "merchants": merchants}
    )


def endpoint(url: str = "http://127.0.0.1:9/", **more: Any) -> dict[str, Any]:
    return {"id": "main", "url": url, "secrets": [SECRET], **more}


def context(
    database: Database,
    endpoints: Endpoints,
    *,
    attempt: float = 10.0,
    ladder: tuple[float, ...] = (10, 30, 120, 600, 3_600, 21_600, 86_400),
) -> Context:
    return Context(
        db=database,
        rails={},
        endpoints=endpoints,
        ladders=LaddersTable(delivery=ladder),
        windows=WindowsTable(delivery_attempt=attempt, delivery_connect=min(attempt, 5.0)),
    )


def event_body(event_id: str, type_: str = "payment_intent.succeeded") -> bytes:
    body = {
        "id": event_id,
        "object": "event",
        "type": type_,
        "created": 1_764_000_000,
        "livemode": False,
        "merchant": MERCHANT,
        "data": {"object": {"id": "pi_1", "object": "payment_intent", "note": "é z a"}},
    }
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def append(tx: Any, *, event_id: str | None = None, **more: Any) -> str:
    """An event in the outbox; its id."""
    id_ = event_id or f"evt_{next(_numbers):024d}"
    values: dict[str, Any] = {
        "merchant_id": MERCHANT,
        "type": "payment_intent.succeeded",
        "object_id": "pi_1",
        "customer_id": None,
        "livemode": False,
        "body": event_body(id_),
        **more,
    }
    events.append(tx, event_id=id_, **values)
    return id_


def append_many(database: Database, count: int) -> list[str]:
    with database.transaction() as tx:
        return [append(tx) for _ in range(count)]


def one_delivery(ctx: Context) -> str:
    """An event, fanned out to the only endpoint; the delivery's id."""
    (event_id,) = append_many(ctx.db, 1)
    assert fanout.drain(ctx.db, ctx.endpoints).deliveries == 1
    ((id_,),) = rows(ctx.db, "SELECT id FROM vpay.webhook_deliveries WHERE event_id = %s", event_id)
    return str(id_)


def rows(database: Database, query: str, *params: Any) -> list[tuple[Any, ...]]:
    with database.connection() as connection:
        cursor = connection.execute(query.encode(), params)
        return cursor.fetchall() if cursor.description is not None else []


@dataclass
class HandRun:
    """A job that a test runs by hand."""

    db: Database
    id: int = 1
    kind: str = "deliver_webhook"
    attempt: int = 1
    deadline: float = field(default_factory=lambda: time.monotonic() + 60)
    cancelled: bool = False
    held: bool = True

    def finishing(self) -> AbstractContextManager[Any]:
        return self.db.transaction()
