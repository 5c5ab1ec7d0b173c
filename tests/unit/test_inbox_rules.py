"""What an event is called, its lane, its ladder; and bodies that are no event."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vpay_tasks.config import LaddersTable
from vpay_tasks.core import inbox
from vpay_tasks.core.strict_json import Unparseable, read_event

BODY = b'{"id": 1}'


@pytest.mark.parametrize("own", ["evt_1", "x", "~" * 128, "evt 1"])
def test_a_vendors_own_id_names_the_event(own: str) -> None:
    assert inbox.event_id(own, BODY, None) == own


@pytest.mark.parametrize(
    "own",
    [None, "", 7, 9_007_199_254_740_993, 1.5, True, ["evt"], {"a": 1}, "x" * 129, "évt", "a\nb"],
)
def test_what_is_no_id_is_replaced_by_the_bodys_digest(own: object) -> None:
    name = inbox.event_id(own, BODY, None)
    assert name == "sha256:" + hashlib.sha256(b"0:" + BODY).hexdigest()
    assert inbox.event_id(own, BODY, None) == name
    assert inbox.event_id(own, BODY + b" ", None) != name


def test_one_body_about_two_references_is_two_events() -> None:
    assert inbox.event_id(None, BODY, "order 1") != inbox.event_id(None, BODY, "order 2")


@given(st.tuples(st.text(), st.text(), st.text()), st.tuples(st.text(), st.text(), st.text()))
@example(("a", "b", "c"), ("ab", "", "c"))
@example(("a", "b", "c"), ("a", "breference", "c"))
@example(("a", "", "1"), ("a1", "", ""))
def test_two_lanes_are_one_only_for_the_same_reference(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (inbox.lane(*one) == inbox.lane(*other)) == (one == other)


def test_a_reference_of_any_length_is_hashed_whole() -> None:
    long = "r" * 100_000
    assert inbox.lane("v", "", long + "1") != inbox.lane("v", "", long + "2")
    assert len(inbox.lane("v", "", long)) == 40


def test_an_event_without_a_reference_has_a_lane_of_its_own() -> None:
    assert inbox.lane("v", "", None, "e1") != inbox.lane("v", "", None, "e2")
    assert inbox.lane("v", "", None, "e1") != inbox.lane("v", "", "e1", "e1")


@pytest.mark.parametrize(
    ("said", "reference"),
    [("r", "r"), (7, "7"), (9_007_199_254_740_993, "9007199254740993"), ("", None), (None, None)],
)
def test_references_are_text(said: object, reference: str | None) -> None:
    assert inbox.reference_of(said) == reference
    assert inbox.reference_of(True) is None
    assert inbox.reference_of(["r"]) is None


@pytest.mark.parametrize(
    ("said", "type_"),
    [("a.b", "a.b"), ("", ""), (None, ""), (3, ""), ("é", ""), ("a b", ""), ("x" * 129, "")],
)
def test_a_type_is_a_word_or_nothing(said: object, type_: str) -> None:
    assert inbox.type_of(said) == type_


def test_the_first_source_that_says_something_is_believed() -> None:
    json = {"a": {"b": "deep", "none": None}, "empty": ""}
    headers = {"x-name": "said"}
    assert inbox.look_up(("a.none", "empty", "a.c.d", "a.b.c", "a.b"), json, headers) == "deep"
    assert inbox.look_up(("header:X-Missing", "header:X-Name"), json, headers) == "said"
    assert inbox.look_up(("a",), ["not", "an", "object"], {}) is None
    assert inbox.look_up((), json, headers) is None


def test_the_ladder_has_eleven_attempts() -> None:
    rungs = LaddersTable().inbox
    delays = [inbox.next_delay(rungs, failed, spread=0.0) for failed in range(12)]
    assert delays == [2, 4, 8, 16, 30, 60, 300, 1_800, 7_200, 86_400, None, None]


@given(st.integers(-5, 1_000_000), st.floats(0, 1, exclude_max=True))
def test_jitter_only_adds_a_tenth(failed: int, spread: float) -> None:
    rungs = LaddersTable().inbox
    delay = inbox.next_delay(rungs, failed, spread=spread)
    if failed >= len(rungs):
        assert delay is None
    else:
        rung = rungs[max(failed, 0)]
        assert delay is not None
        assert rung <= delay <= rung * 1.1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"\x00",
        b"\xff{}",
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b'{"a": "\\u0000"}',
        b'{"a\\u0000": 1}',
        b'{"a": "\x00"}',
        b'["\\ud800"]',
        b'["\\udfff\\ud83d"]',
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b'{"a": 1, "a": 2}',
        b'[{"b": {"a": 1, "a": 1}}]',
        b"1" * 65,
        b"[1e999]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 65 + b"]" * 65,
        b'["\\\\", "\\"", ' + b"[" * 64 + b"]" * 65,
        b'["' + b'\\"' * 130_000 + b"[" * 65,
        b"{} {}",
    ],
)
def test_a_body_that_two_readers_could_read_differently_is_no_event(body: bytes) -> None:
    with pytest.raises(Unparseable):
        read_event(body)


def test_whatever_is_plain_json_is_read() -> None:
    assert read_event(b"[" * 64 + b"]" * 64)
    assert read_event(b'["' + b"[{" * 100_000 + b'"]') == ["[{" * 100_000]
    assert read_event(b"[]" * 0 + b"[" + b"[]," * 1_000 + b"[]]") == [[]] * 1_001
    assert read_event('["😀", "\\ud83d\\ude00", "\\\\u0000"]'.encode()) == ["😀", "😀", "\\u0000"]
    assert read_event(b'{"n": 9007199254740993}') == {"n": 9_007_199_254_740_993}
    assert str(read_event(b"0.10")) == "0.10"
