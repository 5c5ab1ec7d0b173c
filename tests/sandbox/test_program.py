"""Programs and their children end with us, and leave nothing when they end before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Eventually
from vpay_sandbox.process import SandboxError
from vpay_sandbox.program import Program

from .processes import alive, with_path

ROOT = Path(__file__).parents[2]
# A master with one child, as Dramatiq has; the child is deaf to SIGTERM. With "polite" the
# master ends at SIGTERM, its child stays.
MASTER = """
import os, signal, sys
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    ends = "polite" in sys.argv
    signal.signal(signal.SIGTERM, (lambda *_: sys.exit(3)) if ends else signal.SIG_IGN)
    print("master", os.getpid(), "child", child, flush=True)
while True:
    signal.pause()
"""
# Whoever starts a program, and is killed.
STARTER = """
import os, signal, sys
from pathlib import Path
from vpay_sandbox.program import Program
Program("master", [sys.executable, "-c", sys.argv[1]], folder=Path(sys.argv[2]), env=os.environ)
signal.pause()
"""


def pids(log: Path, eventually: Eventually) -> tuple[int, int]:
    """The master's and the child's, once it has said them."""
    words = eventually(lambda: log.read_text().split() if log.exists() else [])
    return int(words[1]), int(words[3])


def start(folder: Path, *words: str) -> Program:
    return Program("master", [sys.executable, "-c", MASTER, *words], folder=folder, env=os.environ)


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Program]:
    program = start(tmp_path)
    yield program
    program.stop(patience_s=0.0)


def test_a_deaf_program_is_killed_with_its_children(deaf: Program, eventually: Eventually) -> None:
    master, child = pids(deaf.log, eventually)
    deaf.stop(patience_s=0.1)
    assert deaf.exit_code == 128 + signal.SIGKILL
    eventually(lambda: not alive(master) and not alive(child))


def test_the_exit_code_is_the_programs_and_its_children_go(
    tmp_path: Path, eventually: Eventually
) -> None:
    program = start(tmp_path, "polite")
    master, child = pids(program.log, eventually)
    program.stop(patience_s=20.0)
    assert program.exit_code == 3
    eventually(lambda: not alive(master) and not alive(child))


def test_a_master_that_is_killed_takes_its_children_along(
    deaf: Program, eventually: Eventually
) -> None:
    master, child = pids(deaf.log, eventually)
    os.kill(master, signal.SIGKILL)
    assert deaf.wait(timeout_s=20.0) == 128 + signal.SIGKILL
    eventually(lambda: not alive(child))


def test_a_hard_killed_starter_leaves_neither_master_nor_child(
    tmp_path: Path, eventually: Eventually
) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, MASTER, str(tmp_path)], env=with_path(ROOT)
    )
    master, child = pids(tmp_path / "master.log", eventually)
    starter.kill()
    starter.wait()
    eventually(lambda: not alive(master) and not alive(child))


def test_a_program_that_ends_early_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    code = "import sys; sys.exit('no such table')"
    program = Program("brief", [sys.executable, "-c", code], folder=tmp_path, env=os.environ)
    assert program.wait(timeout_s=20.0) == 1
    assert str(program.died()).startswith("brief ended by itself (exit 1)")
    assert str(program.died()).endswith("no such table")


def test_a_program_that_goes_on_is_not_waited_for_without_end(deaf: Program) -> None:
    with pytest.raises(SandboxError, match=r"did not end within 0\.1 s"):
        deaf.wait(timeout_s=0.1)
