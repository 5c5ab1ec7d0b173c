"""Celery's no-op: the defaults that people run, results off."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("peer", broker=os.environ.get("BENCH_BROKER", "redis://127.0.0.1/1"))
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)


@app.task
def noop(n: int) -> None:
    """Nothing."""
