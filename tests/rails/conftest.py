"""A stub rail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vpay_sandbox.stub_rail import StubRail


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubRail]:
    with StubRail(journal=tmp_path / "rail.jsonl") as stub:
        yield stub
