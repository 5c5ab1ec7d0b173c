"""A stub rail, the adapter that talks to it, and a worker that polls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.payment_kit import (
    momo,
)
from tests.payments.poll_kit import Polls
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import Settings
from vpay_tasks.core import task
from vpay_tasks.handlers.context import Context
from vpay_tasks.handlers.poll_charge import poll_charge
from vpay_tasks.rails.mtn_momo import MtnMomo
from vpay_tasks.rails.port import RailPort
from vpay_tasks.runtime.run import Running
from vpay_tasks.runtime.run_job import Runner
from vpay_tasks.runtime.settle import Settler
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoints


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubRail]:
    with StubRail(journal=tmp_path / "rail.jsonl") as stub:
        yield stub


@pytest.fixture
def rail(stub: StubRail) -> MtnMomo:
    return momo(stub.url)


@pytest.fixture
def polls(database: Database, stub: StubRail) -> Iterator[Polls]:
    settings = Settings()
    rails: dict[str, RailPort] = {"mtn_momo": momo(stub.url)}
    context = Context(database, rails, Endpoints(settings), settings.ladders, settings.windows)
    registry = task.Registry()
    registry.add(poll_charge)
    settler = Settler(database.url, registry, application="tests")
    settler.start()
    yield Polls(
        database,
        Runner(
            "tests", context, registry, Running(), settler, 30, settings.ladders, settings.windows
        ),
    )
    settler.close()
