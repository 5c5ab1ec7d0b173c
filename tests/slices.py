"""Which slow tests one `--tier=more` run takes: a pure function of their marks and a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SLICE_S: Final = 440.0
"""What a run may take, by its tests' own estimates, on one processor. Lower: the longest tests
fit beside those that are always in no more; higher: continuous integration is slower than
twenty minutes on two cores."""


@dataclass(frozen=True)
class Estimate:
    """What a test marked `more` says of itself."""

    seconds: float = 30.0
    always: bool = False


def chosen(slow: Mapping[str, Estimate], seed: int, *, room: float = SLICE_S) -> set[str]:
    """Those that are always in, then in the seed's order until their estimates fill the room."""
    candidates = sorted(slow)
    random.Random(seed).shuffle(candidates)
    left = room - always(slow)
    taken = {name for name in candidates if slow[name].always}
    for name in candidates:
        if name not in taken and slow[name].seconds <= left:
            taken.add(name)
            left -= slow[name].seconds
    return taken


def without_room(slow: Mapping[str, Estimate], *, room: float = SLICE_S) -> str:
    """What to do about tests that would be in no slice; nothing: there are none."""
    left = room - always(slow)
    too_long = sorted(name for name, one in slow.items() if not one.always and one.seconds > left)
    return (
        f"more than the {left:.0f} s that a slice has beside the tests that are always in it, so"
        " no run of `make test-more` would ever have it: mark it `all`, make it quicker, or raise"
        f" SLICE_S in tests/slices.py: {', '.join(too_long)}"
        if too_long
        else ""
    )


def always(slow: Mapping[str, Estimate]) -> float:
    return sum(one.seconds for one in slow.values() if one.always)
