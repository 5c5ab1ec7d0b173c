from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vpay_tasks.config import LaddersTable
from vpay_tasks.core.polling import poll_delay

LADDERS = LaddersTable()


def test_the_poll_ladder_is_the_documented_one() -> None:
    first = [poll_delay(LADDERS, polls) for polls in range(22)]
    assert first == [10, 20, 30, 45, 60, 90, *[120] * 14, 900, 900]


@given(st.integers(0, 10**6))
def test_every_count_has_a_delay_and_later_ones_are_no_shorter(polls: int) -> None:
    assert 10 <= poll_delay(LADDERS, polls) <= poll_delay(LADDERS, polls + 1) <= 900
