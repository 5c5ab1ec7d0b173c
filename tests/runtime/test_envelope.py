"""The wire form: what is ours is read exactly, everything else is refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpay_tasks.core.task import BATCH_MAX
from vpay_tasks.runtime.envelope import SIZE_MAX, Envelope, Refused, decode, encode

TOKEN = uuid.UUID("5a0e1f6e-6f0c-4d5e-9a51-0d8a5e9a2a11")
GOOD: dict[str, Any] = {"v": 1, "q": "q", "ids": [1], "t": str(TOKEN)}


def test_the_wire_form_is_the_contracts() -> None:
    raw = encode(Envelope("payments", (1, 2), TOKEN))
    assert raw == b'{"v":1,"q":"payments","ids":[1,2],"t":"' + str(TOKEN).encode() + b'"}'


@given(
    st.lists(st.integers(1, 2**63 - 1), min_size=1, max_size=BATCH_MAX, unique=True),
    st.uuids(),
)
def test_what_is_encoded_is_decoded_and_stays_small(ids: list[int], token: uuid.UUID) -> None:
    envelope = Envelope("q", tuple(ids), token)
    assert len(encode(envelope)) <= SIZE_MAX
    assert decode(encode(envelope), "q") == envelope


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        1,
        "text",
        {},
        {**GOOD, "v": 2},
        {**GOOD, "v": True},
        {**GOOD, "v": "1"},
        {**GOOD, "q": "other"},
        {**GOOD, "q": None},
        {**GOOD, "ids": []},
        {**GOOD, "ids": [0]},
        {**GOOD, "ids": [-1]},
        {**GOOD, "ids": [1.0]},
        {**GOOD, "ids": [True]},
        {**GOOD, "ids": ["1"]},
        {**GOOD, "ids": [2**63]},
        {**GOOD, "ids": [1, 1]},
        {**GOOD, "ids": list(range(1, BATCH_MAX + 2))},
        {**GOOD, "ids": {"1": 1}},
        {**GOOD, "t": None},
        {**GOOD, "t": "x"},
        {**GOOD, "payload": {}},
        {k: v for k, v in GOOD.items() if k != "t"},
    ],
)
def test_what_is_not_ours_is_refused(body: Any) -> None:
    with pytest.raises(Refused):
        decode(json.dumps(body, separators=(",", ":")).encode(), "q")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({**GOOD, "payload": {}}, "foreign shape"),
        ({**GOOD, "v": 2}, "another version"),
        ({**GOOD, "q": "other"}, "another queue"),
        ({**GOOD, "ids": [1, 1]}, "ids that can't be"),
        ({**GOOD, "t": "x"}, "no token"),
    ],
)
def test_a_refusal_says_what_is_wrong(body: Any, why: str) -> None:
    with pytest.raises(Refused, match=f"^{why}$"):
        decode(json.dumps(body, separators=(",", ":")).encode(), "q")


@pytest.mark.parametrize(
    "other",
    [
        lambda raw: raw.replace(b'"v":1', b'"v":1,"v":1'),
        lambda raw: raw.replace(b":", b": "),
        lambda raw: raw.replace(b"-", b""),
        lambda raw: raw.upper().replace(b'"V"', b'"v"').replace(b'"Q":"Q"', b'"q":"q"'),
        lambda raw: raw.replace(b'"q"', b'"\\u0071"'),
        lambda raw: raw.decode().encode("utf-16"),
        lambda raw: raw + b"\n",
    ],
)
def test_another_spelling_of_the_same_is_refused(other: Callable[[bytes], bytes]) -> None:
    raw = encode(Envelope("q", (1,), TOKEN))
    assert decode(raw, "q").ids == (1,)
    with pytest.raises(Refused):
        decode(other(raw), "q")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    with pytest.raises(Refused):
        decode(raw, "q")


@pytest.mark.parametrize("raw", [b"[" * 4_000, b'{"v":' * 600, b" " * (SIZE_MAX + 1), b"\xff"])
def test_deep_large_and_binary_ones_too(raw: bytes) -> None:
    with pytest.raises(Refused):
        decode(raw, "q")
