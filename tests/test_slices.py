"""Slow tests are run by chance, and each has one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT
from tests.slices import Estimate, chosen, without_room

SLOW = {
    "soak": Estimate(50, always=True),
    **{f"short {number}": Estimate(10) for number in range(20)},
    "long": Estimate(50),
}


@pytest.mark.parametrize("seed", range(20))
def test_a_slice_has_what_is_always_in_it_and_fills_its_room(seed: int) -> None:
    taken = chosen(SLOW, seed, room=100)
    assert "soak" in taken
    assert sum(SLOW[name].seconds for name in taken) == 100
    assert taken == chosen(SLOW, seed, room=100)


def test_every_slow_test_is_in_some_slice() -> None:
    assert set().union(*(chosen(SLOW, seed, room=100) for seed in range(200))) == SLOW.keys()


def test_a_test_that_no_slice_can_have_is_told_with_what_to_do() -> None:
    assert without_room(SLOW, room=100) == ""
    told = without_room(SLOW, room=99)
    assert told.startswith("more than the 49 s ")
    assert told.endswith(": long")


@pytest.mark.parametrize(("tier", "processes"), [("fast", "0"), ("more", "2"), ("all", "0")])
def test_collecting_it_is_enough_in_any_tier(tmp_path: Path, tier: str, processes: str) -> None:
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['tests.conftest']\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.more(seconds=9000)\ndef test_it(): pass\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-c", ROOT / "setup.cfg"),
            *(f"--tier={tier}", "-n", processes, tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "mark it `all`" in done.stdout + done.stderr
