"""What the doctor says of the books."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.test_findings import HEALTHY, work
from vpay_tasks.doctor import books
from vpay_tasks.doctor.findings import find
from vpay_tasks.store.ledger import Book

EVEN = Book("EUR", charges=2, succeeded=1500, captures=2, captured=1500, payable=1450, fees=50)


def found(*kept: Book) -> list[tuple[str, str, str]]:
    facts = replace(HEALTHY, work=replace(work(), books=kept))
    return [(one.code, one.severity.value, one.remedy) for one in find(facts)]


def test_books_that_balance_are_no_finding() -> None:
    assert found() == found(EVEN) == found(EVEN, replace(EVEN, currency="XAF")) == []


def test_captures_of_before_the_ledger_are_posted_by_one_statement() -> None:
    behind = replace(EVEN, charges=3, succeeded=1700)
    assert found(behind) == [("captures_missing", "error", books.POST_MISSING)]


@pytest.mark.parametrize(
    "changes",
    [
        {"succeeded": 1499},
        {"succeeded": 1501},
        {"charges": 1},
        {"charges": 3},
        {"charges": 3, "succeeded": 1400},
        {"captures": 1},
        {"captures": 3},
        {"captured": 1501},
        {"payable": 1451},
        {"payable": 1449},
        {"fees": 49},
        {"charges": 3, "succeeded": 1700, "payable": 1449},
    ],
    ids=str,
)
def test_books_that_do_not_balance_page(changes: dict[str, Any]) -> None:
    (finding,) = found(replace(EVEN, **changes))
    assert finding == ("books_unbalanced", "page", books.DIFFERENCES)


def test_each_currency_is_judged_by_itself() -> None:
    # Two faults that would cancel each other out in one sum.
    more = replace(EVEN, captured=1501, payable=1451)
    less = replace(EVEN, currency="XAF", captured=1499, payable=1449)
    assert [code for code, _, _ in found(more, less)] == ["books_unbalanced"] * 2


def test_books_that_are_too_large_to_read_are_said_to_be() -> None:
    facts = replace(HEALTHY, work=replace(work(), books=None))
    (finding,) = find(facts)
    assert (finding.code, finding.remedy) == ("books_unread", books.SUMS)
