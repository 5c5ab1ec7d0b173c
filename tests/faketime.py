"""Processes whose clock is wrong: Debian's libfaketime, preloaded.

No wheel brings it: without it the tests of clocks (tests/payments/test_clocks.py) and of the
model, whose clock is moved (tests/model/test_model.py), are left out, loudly; where CI is set,
nothing may be left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest

from vpay_sandbox import install
from vpay_sandbox.postgres import Postgres

NEED_IT: Final = ("test_clocks.py", "test_other_days.py", "test_jumping_clocks.py")
LIBRARY: Final = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


SLEEPING: Final = Path(__file__).parent / "odd_clock"
"""Where such a Python must look for modules: without it, it can't sleep."""


def shifted(hours: float) -> dict[str, str]:
    """The environment of a process whose clock is `hours` ahead. How long something takes is
    measured by another clock, which is left alone."""
    return {**_preloaded(), "FAKETIME": f"{hours * 3_600:+.1f}"}


def following(clock: Path) -> dict[str, str]:
    """The environment of a process whose clock is what `turn` has written, whenever it looks."""
    return {**_preloaded(), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}


def turn(clock: Path, hours: float) -> None:
    """Set the clock of who follows it, at once."""
    part = clock.with_suffix(".part")
    part.write_text(f"{hours * 3_600:+.1f}\n")
    part.chmod(0o644)
    part.rename(clock)


def _preloaded() -> dict[str, str]:
    assert LIBRARY is not None
    return {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        # Shared memory is for programs whose clock runs at another pace.
        "FAKETIME_DISABLE_SHM": "1",
    }


class OddPostgres(Postgres):
    """A server whose clock is `hours` ahead."""

    def __init__(self, folder: Path, hours: float, **more: Any) -> None:
        super().__init__(folder, **more)
        # The library must come into a process after it has become the server's user: what it
        # leaves in shared memory is its owner's alone.
        account = install.unprivileged()
        self._home = install.PrivateFolder(account) if account else None
        self._program = (self._home.path if self._home else folder) / "odd-postgres"
        self._hours = hours

    def bin(self, name: str) -> Path:
        real = super().bin(name)
        if name != "postgres":
            return real
        words = " ".join(f"{key}={value}" for key, value in self._odd().items())
        self._program.write_text(f'#!/bin/sh\nexec env {words} {real} "$@"\n')
        self._program.chmod(0o755)
        return self._program

    def _odd(self) -> dict[str, str]:
        return shifted(self._hours)

    def close(self) -> None:
        super().close()
        if self._home is not None:
            self._home.remove()


class JumpingPostgres(OddPostgres):
    """A server whose clock is right until it is told to `jump`."""

    def __init__(self, folder: Path, **more: Any) -> None:
        super().__init__(folder, 0, **more)
        folder.mkdir(parents=True, exist_ok=True)
        self.jump(0)

    def jump(self, hours: float) -> None:
        """To so many hours ahead of the right time."""
        turn(self._clock, hours)

    @property
    def _clock(self) -> Path:
        return self._program.with_name("clock")

    def _odd(self) -> dict[str, str]:
        return following(self._clock)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI") and LIBRARY is None:
        raise pytest.UsageError("CI is set and libfaketime is missing: nothing may be left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if LIBRARY is not None:
        return
    left_out = {item for item in items if item.path.name in NEED_IT}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LIBRARY is None:
        terminalreporter.write_line(
            "NOT TESTED: clocks that are wrong, and the model. libfaketime is missing, so their"
            " tests were left out (Debian, Ubuntu: apt-get install faketime)",
            red=True,
        )
