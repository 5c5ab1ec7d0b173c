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

LIBRARY: Final = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)

NEED_IT: Final = ("test_clocks.py", "test_model.py")

SLEEPING: Final = Path(__file__).parent / "odd_clock"
"""Where such a Python must look for modules: without it, it can't sleep."""


def shifted(hours: float) -> dict[str, str]:
    """The environment of a process whose clock is `hours` ahead. How long something takes is
    measured by another clock, which is left alone."""
    assert LIBRARY is not None
    return {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME": f"{hours:+g}h",
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
        words = " ".join(f"{key}={value}" for key, value in shifted(self._hours).items())
        self._program.write_text(f'#!/bin/sh\nexec env {words} {real} "$@"\n')
        self._program.chmod(0o755)
        return self._program

    def close(self) -> None:
        super().close()
        if self._home is not None:
            self._home.remove()


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
