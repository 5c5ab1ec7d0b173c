"""Small disks of a test's own: mounts of tmpfs, which take root. Without it the tests of
tests/environments/test_full_disks.py are left out, loudly; where CI is set, nothing may be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from vpay_sandbox import install
from vpay_sandbox.postgres import Postgres

CAN_MOUNT: Final = os.geteuid() == 0
CHUNK: Final = b"\0" * 65_536


class Disk:
    """A mounted one, with a ballast that fills it to the last byte."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        size = len(CHUNK)
        with self._ballast.open("ab", buffering=0) as file:
            while size:
                try:
                    file.write(CHUNK[:size])
                except OSError:
                    size //= 2

    def empty(self) -> None:
        self._ballast.unlink()


@contextmanager
def mounted(megabytes: int) -> Iterator[Disk]:
    """One that the sandbox's servers may write to."""
    account = install.unprivileged()
    assert account is not None
    home = install.PrivateFolder(account)
    owner = f"size={megabytes}m,mode=0755,uid={account.uid},gid={account.gid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", owner, "none", home.path], check=True)
    try:
        yield Disk(home.path)
    finally:
        subprocess.run(["umount", home.path], check=True)
        home.remove()


class PlacedPostgres(Postgres):
    """A server whose data folder is `place`."""

    def __init__(self, folder: Path, place: Path | None, **more: Any) -> None:
        super().__init__(folder, **more)
        self._place = place

    def _choose_data(self) -> Path:
        return super()._choose_data() if self._place is None else self._place


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI") and not CAN_MOUNT:
        raise pytest.UsageError("CI is set and this is not root: nothing may be left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if CAN_MOUNT:
        return
    left_out = {item for item in items if item.path.name == "test_full_disks.py"}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not CAN_MOUNT:
        terminalreporter.write_line(
            "NOT TESTED: full disks. Only root can mount small ones, so their tests were left out",
            red=True,
        )
