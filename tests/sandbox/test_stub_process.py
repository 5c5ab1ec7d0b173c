"""Stubs as programs die with whoever started them, without the help of the one who did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vpay_sandbox.process import wait_until

from .processes import alive, with_path

ROOT = Path(__file__).parents[2]
# A parent that uses plain Popen: the stub itself has to notice.
PARENT = """
import subprocess, sys
stub = subprocess.Popen([sys.executable, "-m", sys.argv[1]], stdout=subprocess.PIPE, text=True)
print(stub.pid, stub.stdout.readline().strip(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("module", ["vpay_sandbox.stub_rail", "vpay_sandbox.stub_receiver"])
def test_a_hard_killed_parent_leaves_no_stub(module: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, module],
        env=with_path(ROOT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    pid, _, said = parent.stdout.readline().partition(" ")
    assert " ready on http://127.0.0.1:" in said
    assert alive(int(pid))
    parent.kill()
    parent.stdin.close()
    parent.stdout.close()
    parent.wait()
    wait_until(lambda: not alive(int(pid)), "the stub to end with its parent")
