"""One delivery, run and looked at by hand."""

from __future__ import annotations

import pytest

from tests.webhooks.world import HandRun, rows
from vpay_tasks.core.job import Answer
from vpay_tasks.handlers.context import Context
from vpay_tasks.handlers.deliver_webhook import deliver_webhook


def run(ctx: Context, delivery_id: str) -> Answer | None:
    return deliver_webhook(HandRun(ctx.db), ctx, delivery_id=delivery_id)


def state(ctx: Context) -> tuple[object, ...]:
    (row,) = rows(ctx.db, "SELECT state, attempts, last_status FROM vpay.webhook_deliveries")
    return row


def make_due(ctx: Context) -> None:
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET next_attempt_at = now()")


def alerts(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (getattr(record, "fields", {}) for record in caplog.records)
    return [fields["action"] for fields in found if fields.get("alert")]
