"""Payments-grade distributed tasks: Postgres is the only source of truth.

What stands here is the public surface; everything else may move.
"""

from vpay_tasks.core.job import Again, Done, Job, Park
from vpay_tasks.core.task import task

__all__ = ["Again", "Done", "Job", "Park", "task"]
