"""Dramatiq by itself: its own Redis broker, its own middleware."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ.get("BENCH_BROKER", "redis://127.0.0.1/2"))
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(n: int) -> None:
    """Nothing."""
