"""Who recovers dies too: the next one ends it all the same, once."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.kills.driver import Case, Way
from tests.kills.pairs import Pair, pair
from tests.kills.plays import Payment
from tests.kills.world import KIOSK, World

SEEDS: Final = range(1, 31)
"""Any other number is another pair."""


@pytest.mark.more(seconds=9)
@pytest.mark.parametrize("pair", [pair(seed) for seed in SEEDS], ids=str)
def test_a_recovery_that_is_killed_is_recovered_from(world: World, pair: Pair) -> None:
    play = Payment(world, str(pair), merchant=KIOSK)
    case = Case(world, play)
    case.run(pair.steps(), Way(posts=None))
    words = Counter(" ".join(play.words(pair.kind)).split())
    assert words >= Counter(pair.reaped()), case.story()
    assert 1 <= len(play.posts()) <= 3
