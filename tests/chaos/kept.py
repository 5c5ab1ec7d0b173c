"""A process under a supervisor: whatever ends it, another takes its place."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from vpay_sandbox.process import SandboxError
from vpay_sandbox.program import Program

AGAIN_S: Final = 0.5
"""Between two starts. Shorter: what can't boot takes the machine from what can."""
END_S: Final = 20.0


class Kept:
    """`argv` is asked for at each start. `tend` is called often, by one thread."""

    def __init__(
        self,
        name: str,
        argv: Callable[[], Sequence[str | Path]],
        *,
        folder: Path,
        env: Mapping[str, str],
    ) -> None:
        self.name = name
        self.more: dict[str, str] = {}
        """Of the environment of the next starts."""
        self.starts = 0
        self.ends: list[int] = []
        """Exit codes, 128 + the signal of what was killed."""
        self._argv, self._folder, self._env = argv, folder, env
        self._program: Program | None = None
        self._wanted = False
        self._not_before = 0.0
        self._lock = threading.Lock()

    def start(self) -> None:
        self._wanted = True
        self.tend()

    def tend(self) -> None:
        """Start it, or start it again, if it is meant to run."""
        with self._lock:
            if self._program is not None and self._program.exit_code is not None:
                self.ends.append(self._program.exit_code)
                self._program = None
            if self._program is None and self._wanted and time.monotonic() >= self._not_before:
                self._not_before = time.monotonic() + AGAIN_S
                env = {**self._env, **self.more}
                self._program = Program(self.name, self._argv(), folder=self._folder, env=env)
                self.starts += 1

    def retire(self) -> None:
        """SIGTERM, and no successor."""
        self._wanted = False
        if (program := self._program) is not None:
            program.tell_to_stop()

    def ended(self) -> bool:
        self.tend()
        return self._program is None

    def stop(self, *, patience_s: float = END_S) -> None:
        self._wanted = False
        if (program := self._program) is not None:
            program.stop(patience_s=patience_s)
            self.tend()

    @property
    def pid(self) -> int | None:
        """The program's own, not its keeper's; None while there is none."""
        program = self._program
        return next(iter(children(program._process.pid)), None) if program is not None else None

    @property
    def child(self) -> int | None:
        """A worker process of a group's master: those of its children that have threads."""
        pid = self.pid
        found = [one for one in children(pid) if threads(one) > 2] if pid is not None else []
        return found[0] if found else None


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - only the number
    except OSError:
        return 0


def state(pid: int) -> str:
    """T: stopped. Z, or nothing: gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def gone(pid: int) -> bool:
    return state(pid) in {"", "Z", "X"}


def send(pid: int, number: signal.Signals) -> None:
    """SandboxError when there is nobody any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise SandboxError(f"{pid} is gone already") from None
