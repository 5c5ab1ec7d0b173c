"""Commands of the project as processes of the sandbox: a name, a log, an end without leftovers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vpay_sandbox.process import SandboxError, spawn, tail

KEEPER = Path(__file__).with_name("keeper.py")
# Holds the packages, installed or not: programs run from here.
HOME = Path(__file__).resolve().parents[1]
# For work that is in flight when it is told to stop. Lower: a webhook is cut off in the middle;
# higher: Ctrl-C seems not to work. Whatever is cut off is thrown away with the database.
PATIENCE_S = 6.0
# After SIGKILL only a stuck kernel call keeps a process.
KILL_S = 10.0


def command(name: str, entry: str) -> list[str | Path]:
    """The installed script `name`; in a tree that is not installed, the same function."""
    script = Path(sys.executable).with_name(name)
    if script.is_file():
        return [script]
    code = f"import sys; from vpay_tasks.cli import {entry}; sys.exit({entry}())"
    return [sys.executable, "-c", code]


class Program:
    """One started command and all its children. They die with this process, even by kill -9."""

    def __init__(
        self, name: str, argv: Sequence[str | Path], *, folder: Path, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.argv = argv
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] = spawn(
            [sys.executable, "-I", "-S", KEEPER, *argv],
            log=self.log,
            death=signal.SIGUSR1,
            env=env,
            cwd=HOME,
        )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait(self, *, timeout_s: float) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise SandboxError(f"{self.name} did not end within {timeout_s:g} s") from None

    def tell_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, *, patience_s: float = PATIENCE_S) -> None:
        """SIGTERM; after `patience_s` the whole group is killed."""
        self.tell_to_stop()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)
            self._process.wait(KILL_S)

    def kill(self) -> None:
        """kill -9 for the whole group; returns once it is gone."""
        self._process.send_signal(signal.SIGUSR1)
        self.wait(timeout_s=KILL_S)

    def died(self) -> SandboxError:
        """What to tell about a program that ended by itself."""
        return SandboxError(
            f"{self.name} ended by itself (exit {self.exit_code}); the end of {self.log}:\n"
            f"{tail(self.log)}"
        )
