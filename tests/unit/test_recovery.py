from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpay_tasks.core.charge import Attempt, AttemptClass, FailureCode, Flow
from vpay_tasks.core.recovery import (
    Advance,
    Ask,
    FailDeadOrder,
    FailDeclined,
    Recovery,
    Resubmit,
    Wait,
    recover,
)

KINDS = {
    "accepted": (AttemptClass.ACCEPTED, None),
    "declined": (AttemptClass.DECLINED, FailureCode.INVALID_PAYER),
    "unknown": (AttemptClass.UNKNOWN, None),
    "unanswered": (None, None),
}
histories = st.lists(st.sampled_from(sorted(KINDS)), max_size=4)


def rows(words: list[str]) -> list[Attempt]:
    return [Attempt(number, *KINDS[word]) for number, word in enumerate(words)]


def decide(
    words: list[str],
    flow: Flow = Flow.PUSH,
    *,
    age: float = 61,
    key: bool = False,
    streak: int = 0,
    since: float = 0,
) -> Recovery:
    return recover(
        flow,
        rows(words),
        age=age,
        window=60,
        not_found_window=60,
        has_key_material=key,
        not_found_streak=streak,
        not_found_for=since,
    )


@given(histories, st.sampled_from(list(Flow)), st.floats(-1e9, 59.999), st.booleans())
def test_a_charge_younger_than_the_window_is_left_alone_and_looked_at_once_when_it_is_older(
    words: list[str], flow: Flow, age: float, key: bool
) -> None:
    answer = decide(words, flow, age=age, key=key)
    assert isinstance(answer, Wait)
    assert 0 <= answer.seconds <= 61
    if age >= 0:
        assert age + answer.seconds > 60


DECLINED = FailDeclined(FailureCode.INVALID_PAYER)


@pytest.mark.parametrize(
    ("flow", "words", "key", "expected"),
    [
        (Flow.PUSH, [], False, Resubmit()),
        (Flow.PUSH, ["accepted"], False, Advance()),
        (Flow.PUSH, ["declined", "accepted"], False, Advance()),
        (Flow.PUSH, ["unknown", "accepted"], False, Advance()),
        (Flow.PUSH, ["accepted", "declined"], False, Advance()),
        (Flow.PUSH, ["accepted", "unknown"], False, Advance()),
        (Flow.PUSH, ["declined"], False, DECLINED),
        (Flow.PUSH, ["declined", "declined"], False, DECLINED),
        (Flow.PUSH, ["unknown"], False, Ask()),
        (Flow.PUSH, ["unanswered"], False, Ask()),
        (Flow.PUSH, ["declined", "unknown"], False, Ask()),
        (Flow.PUSH, ["unanswered", "declined"], False, Ask()),
        (Flow.REDIRECT, [], False, FailDeadOrder()),
        (Flow.REDIRECT, ["unknown"], False, FailDeadOrder()),
        (Flow.REDIRECT, ["accepted"], True, Advance()),
        (Flow.REDIRECT, ["accepted", "unanswered"], True, Advance()),
        (Flow.REDIRECT, ["accepted"], False, FailDeadOrder()),
        (Flow.REDIRECT, ["declined"], False, DECLINED),
        (Flow.REDIRECT, ["declined", "unanswered"], False, FailDeadOrder()),
    ],
)
def test_the_first_line_that_fits_decides(
    flow: Flow, words: list[str], key: bool, expected: Recovery
) -> None:
    assert decide(words, flow, key=key) == expected


@pytest.mark.parametrize(
    ("streak", "since", "expected"),
    [(3, 60, Resubmit()), (2, 1e6, Ask()), (10**6, 59.9, Ask()), (0, 0, Ask())],
)
def test_a_submit_is_repeated_only_after_three_not_founds_and_a_minute(
    streak: int, since: float, expected: Recovery
) -> None:
    assert decide(["unknown"], streak=streak, since=since) == expected


def test_nothing_is_failed_while_any_attempt_may_have_reached_the_rail() -> None:
    for length in (1, 2, 3):
        for words in itertools.product(KINDS, repeat=length):
            answer = decide(list(words))
            if {"unknown", "unanswered", "accepted"} & set(words):
                assert isinstance(answer, Ask | Advance)


@given(st.integers(0, 10**6), st.floats(0, 1e9))
def test_denials_resubmit_once_there_are_enough_of_them_for_long_enough_and_stay_enough(
    streak: int, since: float
) -> None:
    expected = Resubmit() if streak >= 3 and since >= 60 else Ask()
    assert decide(["unknown"], streak=streak, since=since) == expected
    assert decide(["unanswered", "declined"], streak=streak, since=since) == expected
