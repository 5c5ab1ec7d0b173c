"""When a charge is asked about again."""

from __future__ import annotations

from vpay_tasks.config import LaddersTable
from vpay_tasks.core.ladders import Ladder


def poll_delay(ladders: LaddersTable, polls: int) -> float:
    """Seconds from the ask that made `polls` + 1 to the next one: 10 s after the first. No
    jitter: polls start when payers confirm, so they are spread already."""
    return Ladder(ladders.poll, jitter=0.0).delay(polls)
