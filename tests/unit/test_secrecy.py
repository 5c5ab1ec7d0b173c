"""What a process leaves behind when it dies."""

from __future__ import annotations

import subprocess
import sys

BEGINS = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
from vpay_tasks import cli
cli.main(["endpoints", "check", "https://hooks.example.invalid/x"])
print(resource.getrlimit(resource.RLIMIT_CORE) == (0, hard))
"""


def test_a_process_that_crashes_leaves_no_core_file() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGINS], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "True"
