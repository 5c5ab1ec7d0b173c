"""Fixtures of the tests of odd environments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import PG
from tests.rails import conftest as rails
from vpay_sandbox.postgres import Postgres
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect

stub = rails.stub


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a migrated database on a server that a module may set up as it likes."""
    server = Postgres(tmp_path_factory.mktemp("lone"), settings={"fsync": "off"}, version=PG)
    with server:
        with connect(server.url(), application="tests") as connection:
            migrate.apply(connection)
        yield server.url()
