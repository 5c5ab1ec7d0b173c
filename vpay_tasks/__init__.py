"""Payments-grade distributed tasks: Postgres is the only source of truth.

What stands here is the public surface, with `vpay_tasks.payments`, `.webhooks`, `.inbox`,
`.errors`, `.config` and `.wiring`; everything else may move.
"""

from vpay_tasks.core.job import Again, Done, Job, Park
from vpay_tasks.core.task import task
from vpay_tasks.handlers.context import Context
from vpay_tasks.store.db import Database
from vpay_tasks.store.jobs import Enqueued, enqueue

__all__ = ["Again", "Context", "Database", "Done", "Enqueued", "Job", "Park", "enqueue", "task"]
