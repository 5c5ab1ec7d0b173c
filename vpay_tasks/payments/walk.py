"""Sweeps that need a transaction per row: each row is tried once a walk.

A page that can't be moved hides nobody: were it read anew each time, a hundred rows that
fail would keep all behind them waiting for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from vpay_tasks.core.job import Job
from vpay_tasks.core.walk import FRONT, Place, Walked
from vpay_tasks.errors import Severity, VpayError, describe
from vpay_tasks.telemetry import count, say

LEFT_S: Final = 30.0
"""Of the run's budget, left when a walk is cut short. Lower: a row that waits for a lock
overruns it; higher: walks are cut sooner."""

Row = TypeVar("Row", bound=Place)


def walk(
    job: Job,
    page: Callable[[Place], Sequence[Row]],
    one: Callable[[Row], bool],
    *,
    size: int,
    action: str,
) -> Walked:
    """Try `one` on every row of `page`, page by page while they are full (`size`), until the
    job's time is over. A row that raises costs a line and its turn, and is found again by the
    next walk. Raises what `page` does."""
    walked, rows, place = Walked(), page(FRONT), FRONT
    while rows:
        for row in rows:
            if job.cancelled or time.monotonic() > job.deadline - LEFT_S:
                walked.whole = False
                return walked
            try:
                walked.moved += one(row)
            except VpayError as error:
                count("sweep_failures")
                sentence = "a row could not be swept; the next sweep tries again"
                say(Severity.WARN, sentence, action=action, row=row.id, error=describe(error))
        place = rows[-1]
        rows = page(place) if len(rows) == size else []
    return walked
