from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpay_tasks.core.ids import new_id


@given(st.binary(min_size=15, max_size=15), st.binary(min_size=15, max_size=15))
def test_an_id_is_a_prefix_and_24_characters_and_other_bytes_make_another_one(
    one: bytes, two: bytes
) -> None:
    assert re.fullmatch(r"pi_[a-z2-7]{24}", new_id("pi", one))
    assert (new_id("ch", one) == new_id("ch", two)) == (one == two)


@pytest.mark.parametrize("size", [0, 14, 16])
def test_an_id_is_not_made_of_another_number_of_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="15 random bytes"):
        new_id("pi", b"x" * size)
