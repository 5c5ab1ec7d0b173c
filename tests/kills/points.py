"""The matrix: where, by what, and how it heals. A new point is an entry of one of its tables."""

from __future__ import annotations

from typing import Final

from tests.kills import paying, telling

POINTS: Final = (
    *paying.CONFIRM,
    *paying.CLAIM,
    *paying.SETTLEMENT,
    *paying.REAP,
    *telling.FAN_OUT,
    *telling.SETTLE,
    *telling.DELIVERY,
    *telling.INBOX,
)
CASES: Final = tuple((point, fault) for point in POINTS for fault in point.ways)
