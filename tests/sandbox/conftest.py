"""Resources of the sandbox's own tests: real processes in folders that are theirs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vpay_sandbox.postgres import Postgres
from vpay_sandbox.scenarios import Script, load
from vpay_sandbox.stub_rail import StubRail
from vpay_sandbox.valkey import Valkey


@pytest.fixture(scope="session")
def script() -> Script:
    return load()


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("pg")) as server:
        yield server


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    with Valkey(tmp_path) as server:
        yield server


@pytest.fixture
def rail(tmp_path: Path) -> Iterator[StubRail]:
    with StubRail(journal=tmp_path / "rail.jsonl") as stub:
        yield stub


@pytest.fixture
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder like /var/tmp: everybody may pass and write, nobody may rename another's."""
    # Not below tmp_path, which is ours alone: the unprivileged user could not get there.
    with tempfile.TemporaryDirectory(prefix="vpay-place-") as name:
        Path(name).chmod(0o1777)
        yield Path(name)
