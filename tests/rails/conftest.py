"""A stub rail, and every bench in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rails.benches import BENCHES, Bench
from vpay_sandbox.stub_rail import StubRail


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubRail]:
    with StubRail(journal=tmp_path / "rail.jsonl") as stub:
        yield stub


@pytest.fixture(params=sorted(BENCHES))
def bench(request: pytest.FixtureRequest, stub: StubRail) -> Bench:
    bench = BENCHES[request.param]
    bench.serve(stub)
    return bench
