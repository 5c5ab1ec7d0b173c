"""Dramatiq by itself, with an actor that signs and posts as a delivery does: no database, no
log, no retries, no cap for an endpoint."""

from __future__ import annotations

import os
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from vpay_tasks.webhooks import egress, send
from vpay_tasks.webhooks.sign import headers

dramatiq.set_broker(RedisBroker(url=os.environ.get("BENCH_BROKER", "redis://127.0.0.1/3")))
SECRET = os.environ.get("BENCH_SECRET", "")
RULES = egress.SANDBOX


@dramatiq.actor(max_retries=0)
def deliver(url: str, event_id: str, body: str) -> None:
    """One signed POST."""
    raw = body.encode()
    signed = headers(raw, (SECRET,), int(time.time()), event_id=event_id, attempt=1)
    send.post(url, signed, raw, rules=RULES, connect=5, whole=10, hide=(SECRET,))
