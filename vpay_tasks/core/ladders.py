"""Delays between attempts. Pure: a random number, where one is wanted, is passed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from vpay_tasks.errors import Configuration

YEAR_S: Final = 366 * 86_400
"""Longer delays are typing errors, and near the end of what an interval holds."""


@dataclass(frozen=True)
class Ladder:
    """Seconds to wait after the first, second, … failure; the last rung repeats for ever.

    `jitter` is added only (a rung is a promise not to come earlier): 0.1 spreads an
    outage's victims over a tenth of the rung, so that they don't return as one herd.
    """

    rungs: tuple[float, ...]
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not self.rungs or not all(0 < rung <= YEAR_S for rung in self.rungs):
            raise Configuration(f"Ladder({self.rungs}): at least one rung, each up to a year")
        if not 0 <= self.jitter <= 1:
            raise Configuration(f"Ladder(jitter={self.jitter}): a share of the rung, 0 to 1")

    def delay(self, count: int, spread: float = 0.0) -> float:
        """Seconds after failure number `count` (0-based); `spread` in [0, 1) is the dice."""
        rung = self.rungs[min(max(count, 0), len(self.rungs) - 1)]
        return rung * (1 + self.jitter * spread)


DEFAULT = Ladder((5, 15, 60, 300, 900, 3_600))
"""For kinds that name none; the settings' `ladders.error` takes its place at boot."""
