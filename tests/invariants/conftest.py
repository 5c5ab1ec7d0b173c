"""The whole database, and how each test gets it to break."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from tests.invariants import whole as whole_
from tests.invariants.whole import Whole
from tests.payment_kit import opened


@pytest.fixture(scope="module")
def made(clone: Callable[[], AbstractContextManager[str]]) -> Iterator[Whole]:
    """One database for all: each test breaks it in a transaction that is rolled back."""
    with clone() as url, opened(url) as database:
        made = whole_.make(database, url)
        yield made
        made.connection.close()


@pytest.fixture
def whole(made: Whole) -> Iterator[Whole]:
    with made.connection.transaction(force_rollback=True):
        yield replace(made, evidence=copy.deepcopy(made.evidence))
