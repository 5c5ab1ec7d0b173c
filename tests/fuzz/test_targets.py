"""Every parser is given some of what `make fuzz` gives it for hours."""

from __future__ import annotations

import pytest

from tests.fuzz.limits import TooSlow, bounded
from tests.fuzz.targets import TARGETS, attack

CASES = 60


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_whatever_comes_is_read_exactly_or_refused_as_declared(name: str) -> None:
    assert attack(name, cases=CASES) >= CASES // 2


def test_an_input_that_keeps_a_parser_busy_is_a_finding() -> None:
    with pytest.raises(TooSlow), bounded(0.05):
        while True:
            pass
