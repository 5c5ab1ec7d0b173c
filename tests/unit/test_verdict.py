"""The whole table of verdicts, cell by cell."""

from __future__ import annotations

import pytest

from vpay_tasks.core.answers import Failed, NotFound, Pending, StatusAnswer, Succeeded
from vpay_tasks.core.charge import FailureCode, State
from vpay_tasks.core.verdict import (
    Contradiction,
    CountNotFound,
    Nothing,
    Settle,
    Stay,
    ToPending,
    Verdict,
    verdict,
)

PAID = Succeeded("txn-1")
LOST = Failed(FailureCode.PAYER_TIMEOUT, "EXPIRED")
STATES = ["submitting", "submitted", "pending", "unresolved", "succeeded", "failed"]
TABLE: list[tuple[StatusAnswer, list[Verdict]]] = [
    (Pending(), [ToPending(), ToPending(), Stay(), Stay(), Nothing(), Nothing()]),
    (PAID, [*[Settle(PAID)] * 4, Nothing(), Contradiction()]),
    (LOST, [*[Settle(LOST)] * 4, Contradiction(), Nothing()]),
    (NotFound(), [CountNotFound(), CountNotFound(), Stay(), Stay(), Nothing(), Nothing()]),
]


@pytest.mark.parametrize(
    ("answer", "state", "expected"),
    [
        pytest.param(answer, State(state), expected, id=f"{type(answer).__name__}-{state}")
        for answer, row in TABLE
        for state, expected in zip(STATES, row, strict=True)
    ],
)
def test_every_answer_means_one_thing_in_every_state(
    answer: StatusAnswer, state: State, expected: Verdict
) -> None:
    assert verdict(answer, state) == expected


def test_the_table_has_a_column_for_every_state() -> None:
    assert list(State) == STATES
