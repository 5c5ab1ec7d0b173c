"""Fixtures of the inbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.inbox.bench import InboxBench
from vpay_tasks.store.db import Database


@pytest.fixture
def box(database: Database, dsn: str) -> Iterator[InboxBench]:
    bench = InboxBench(database, dsn)
    yield bench
    bench.close()
