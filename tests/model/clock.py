"""One clock for the whole simulated installation, moved by the program alone.

Postgres runs under libfaketime and reads its time from a file; the processes' own clocks
(`time.monotonic`, CLOCK_BOOTTIME) are this object. Neither goes on by itself, so that a
program that is replayed meets the same instants, however slow the machine is.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.faketime import LIBRARY
from vpay_sandbox import install
from vpay_sandbox.postgres import Postgres

BEGIN: Final = 1_900_000_000.0
"""Ahead of the machine's own clock: what Postgres wrote before it was faked is then old."""

TICK_S: Final = 0.001
"""What one step takes. 0 would make instants equal that never are."""


class Clock:
    """`now` in seconds since 1970. `file` is what libfaketime reads."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        self.now = BEGIN
        self._write()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._write()

    def close(self) -> None:
        os.close(self._file)

    def _write(self) -> None:
        text = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        # One write of one length: whoever reads at this moment never reads half of it.
        os.pwrite(self._file, f"{text}\n".encode(), 0)


class FakedPostgres(Postgres):
    """A server whose time stands still until its clock is moved. Data outlives no crash."""

    def __init__(self, folder: Path, **more: Any) -> None:
        settings = {
            "fsync": "off",
            "full_page_writes": "off",
            # By a clock that jumps it would run in the middle of anything.
            "autovacuum": "off",
            # Time stands still while a deadlock is: nobody would look for it. The program does.
            "deadlock_timeout": "60s",
            **more.pop("settings", {}),
        }
        super().__init__(folder, settings=settings, **more)
        # The library must come into a process after it has become the server's user.
        account = install.unprivileged()
        self._home = install.PrivateFolder(account) if account else None
        place = self._home.path if self._home else folder
        self._program = place / "faked-postgres"
        self._time = place / "time"
        self.clock = Clock(self._time)

    def bin(self, name: str) -> Path:
        real = super().bin(name)
        if name != "postgres":
            return real
        words = {
            "LD_PRELOAD": LIBRARY,
            "FAKETIME_TIMESTAMP_FILE": self._time,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        given = " ".join(f"{key}={value}" for key, value in words.items())
        self._program.write_text(f'#!/bin/sh\nexec env {given} {real} "$@"\n')
        self._program.chmod(0o755)
        return self._program

    def close(self) -> None:
        super().close()
        self.clock.close()
        if self._home is not None:
            self._home.remove()
