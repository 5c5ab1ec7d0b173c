"""Fixtures of the run side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories import a_worker
from tests.runtime.bench import Bench
from vpay_tasks.store.db import Database


@pytest.fixture
def a_worker_of_eight(database: Database) -> str:
    return a_worker(database)


@pytest.fixture
def bench(database: Database, dsn: str) -> Iterator[Bench]:
    a_worker(database)
    bench = Bench(database, dsn)
    yield bench
    bench.close()
