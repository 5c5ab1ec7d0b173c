"""Fixtures of the tests of odd environments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PG, Eventually
from tests.environments.servers import Pair
from tests.environments.street import Street
from tests.rails import conftest as rails
from vpay_sandbox.postgres import Postgres
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect

stub = rails.stub


@pytest.fixture
def pair(tmp_path: Path, eventually: Eventually, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Synchronous, unless the test is parametrized to have it otherwise."""
    pair = Pair(tmp_path, eventually, synchronous=getattr(request, "param", True))
    yield pair
    pair.close()


@pytest.fixture
def street(tmp_path: Path, pair: Pair, broker_url: str) -> Iterator[Street]:
    """Payments on the pair's servers."""
    street = Street(tmp_path, pair.url, broker_url)
    yield street
    street.close()


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a migrated database on a server that a module may set up as it likes."""
    server = Postgres(tmp_path_factory.mktemp("lone"), settings={"fsync": "off"}, version=PG)
    with server:
        with connect(server.url(), application="tests") as connection:
            migrate.apply(connection)
        yield server.url()
