"""How fast a queue is emptied: ours and the peers' by the same clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 120.0
LOOKS_S: Final = (0.005, 0.5)
"""Between two looks, at the least and at the most. A look makes the server count what is left,
which takes from what is measured: so there is one per tenth of the time that is left."""


def drained(what: str, count: int, left: Callable[[], int]) -> float:
    """Jobs/s from the first look that finds fewer than `count` to the one that finds none."""
    give_up = time.monotonic() + PATIENCE_S
    begun, first, pause = 0.0, count, LOOKS_S[0]
    while (seen := left()) > 0:
        now = time.monotonic()
        if now > give_up:
            raise SystemExit(f"{what} left {seen} of {count} jobs")
        if not begun and seen < count:
            begun, first = now, seen
        elif begun and seen < first:
            pause = seen * (now - begun) / (first - seen) / 10
        time.sleep(min(max(pause, LOOKS_S[0]), LOOKS_S[1]))
    return first / (time.monotonic() - begun)
