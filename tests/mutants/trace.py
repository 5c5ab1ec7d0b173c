"""A plugin of pytest's: which test ran which statement, into the file that $VPAY_TRACE names."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from vpay_tasks.store.sql import Statement

_ran: defaultdict[str, dict[str, float]] = defaultdict(dict)
_now: list[str] = []
_given = Statement.given


def _noted(self: Statement, params: Mapping[str, Any] | None) -> list[Any]:
    for test in _now:
        _ran[f"{self.file}:{self.name}"][test] = 0.0
    return _given(self, params)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _now[:] = [item.nodeid.partition("[")[0]]
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    test = report.nodeid.partition("[")[0]
    for tests in _ran.values():
        if test in tests:
            tests[test] += report.duration


def pytest_sessionstart() -> None:
    Statement.given = _noted  # type: ignore[method-assign]


def pytest_sessionfinish() -> None:
    # One line for each process of xdist's.
    with Path(os.environ["VPAY_TRACE"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(_ran) + "\n")
