"""Two minutes of a soak; `make chaos` runs longer ones."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.soak import Soak
from tests.invariants import NAMES

SEED, SECONDS = 1, 120.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where Postgres, which may run as another user, can reach its data. It stays when the test
    fails: it is all that there is to look at."""
    folder = Path(tempfile.mkdtemp(prefix="vpay-chaos-"))
    folder.chmod(0o755)
    yield folder
    if (folder / "well").exists():
        shutil.rmtree(folder)


@pytest.mark.more(seconds=170, always=True)
def test_two_minutes_of_every_fault_break_no_promise(folder: Path) -> None:
    result = Soak(SECONDS, SEED, folder).run()
    assert result.violations == {name: [] for name in NAMES}, str(folder)
    # All of it happened: a soak without faults or without work would be as green.
    assert result.unproved == []
    told = json.loads(json.dumps(result.as_json()))
    figures = ("charges", "events", "deliveries", "duplicates_refused", "exposure_per_10k")
    assert all(told[figure] > 0 for figure in figures), told
    assert list(told) == [
        *("seed", "seconds", "faults", "charges", "events", "deliveries", "violations"),
        *("max_stuck_s", "exposure_per_10k", "lost", "ambiguous", "duplicates_refused"),
    ]
    (folder / "well").touch()
