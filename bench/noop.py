"""Tasks that do nothing, or only say when they began: what is measured is everything else."""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

from vpay_tasks import task

_line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
_to = ("127.0.0.1", int(os.environ.get("BENCH_PORT", "9")))


@task()
def noop(_job: Any, _ctx: Any) -> None:
    """One job a message."""


@task(batch=32)
def noop_batch(_job: Any, _ctx: Any) -> None:
    """Up to 32 jobs a message."""


@task()
def stamp(_job: Any, _ctx: Any, *, n: int) -> None:
    """Say when the handler began, by the clock that all processes of a machine share."""
    _line.sendto(struct.pack("!qqq", n, time.monotonic_ns(), os.getpid()), _to)


@task(budget=600)
def held(job: Any, _ctx: Any, *, n: int) -> None:
    """Say so, and stay until this process is killed – unless it has been, before."""
    again = Path(os.environ.get("BENCH_FOLDER", "/nowhere"), f"killed-{n}").exists()
    _line.sendto(struct.pack("!qqq", n, time.monotonic_ns(), os.getpid()), _to)
    while not (again or job.cancelled):
        time.sleep(0.2)
