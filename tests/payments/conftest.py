"""A stub rail, the adapter that talks to it, and a worker that polls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.payment_kit import momo, opened
from tests.payments.poll_kit import Polls
from tests.rails import conftest as rails
from tests.rails.benches import BENCHES
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import Settings
from vpay_tasks.core import task
from vpay_tasks.handlers.context import Context
from vpay_tasks.handlers.poll_charge import poll_charge
from vpay_tasks.handlers.resubmit_charge import resubmit_charge
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.runtime.run import Running
from vpay_tasks.runtime.run_job import Runner
from vpay_tasks.runtime.settle import Settler
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoints

stub, bench = rails.stub, rails.bench


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    with opened(dsn) as database:
        yield database


@pytest.fixture
def rail(stub: StubRail) -> MtnMomo:
    return momo(stub.url)


@pytest.fixture
def polls(database: Database, stub: StubRail) -> Iterator[Polls]:
    with polling(database, stub) as polls:
        yield polls


@contextmanager
def polling(database: Database, stub: StubRail) -> Iterator[Polls]:
    """A worker's own parts, on this database and this rail."""
    settings = Settings()
    built = {bench.code: bench.rail(stub) for bench in BENCHES.values()}
    context = Context(database, built, Endpoints(settings), settings.ladders, settings.windows)
    registry = task.Registry()
    registry.add(poll_charge)
    registry.add(resubmit_charge)
    settler = Settler(database.url, registry, application="tests")
    settler.start()
    runner = Runner(
        "tests", context, registry, Running(), settler, 30, settings.ladders, settings.windows
    )
    yield Polls(database, runner)
    runner.close()
    settler.close()
