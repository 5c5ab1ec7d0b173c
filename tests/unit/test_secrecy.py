"""What a process leaves behind when it dies."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CRASHES = """
import os, resource, signal, sys
folder, begin, number = sys.argv[1:]
os.chdir(folder)
try:
    # As whoever starts us may allow it; the first of these is for root alone.
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
except ValueError:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
if begin:
    from vpay_tasks import cli
    cli.main(["endpoints", "check", "https://hooks.example.invalid/x"])
soft, still = resource.getrlimit(resource.RLIMIT_CORE)
with open("limits", "w") as file:
    print(soft, hard, still, file=file)
signal.signal(int(number), signal.SIG_DFL)
os.kill(os.getpid(), int(number))
"""
PIPED = Path("/proc/sys/kernel/core_pattern").read_text().startswith("|")
"""The kernel hands cores to a program, whatever the limit: what was left is that program's
choice, and the limit is what it has of ours."""


@dataclass(frozen=True)
class Left:
    """What a crash left: the limit that its process had, what it was given, what it might be
    raised to from outside, whether the kernel wrote a core, and which files."""

    limit: int
    given: int
    hard: int
    core: bool
    files: set[str]


def crashed(folder: Path, begin: str, number: signal.Signals) -> Left:
    command = [sys.executable, "-c", CRASHES, str(folder), begin, str(int(number))]
    _, status = os.waitpid(os.posix_spawn(sys.executable, command, os.environ), 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == number
    limit, given, hard = map(int, (folder / "limits").read_text().split())
    names = {path.name for path in folder.iterdir()} - {"limits"}
    return Left(limit, given, hard, os.WCOREDUMP(status), names)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_process_that_crashes_leaves_no_core_file(tmp_path: Path, number: signal.Signals) -> None:
    left = crashed(tmp_path, "as a command of ours", number)
    assert (left.limit, left.hard, left.files) == (0, left.given, set())
    assert PIPED or not left.core


def test_a_process_without_the_guard_has_the_limit_that_it_was_given(tmp_path: Path) -> None:
    # Or the test above would pass of itself. It does where a machine allows nobody any.
    left = crashed(tmp_path, "", signal.SIGSEGV)
    assert left.limit == left.given
