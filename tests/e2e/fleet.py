"""Real processes for fault tests: dispatchers, worker groups, and a look at their logs."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from signal import SIGKILL, Signals
from typing import IO, Any

from tests.web.client import Client

MODULES = Path(__file__).parent / "modules"
"""Tasks that tests steer; loaded by workers and dispatchers as a user's module would be."""


class Process:
    """One started command with its log, in a process group of its own."""

    def __init__(self, name: str, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._output: IO[bytes] = log.open("wb")
        self.popen = subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines it has logged so far."""
        found = []
        for line in self.log.read_text("utf-8", errors="replace").splitlines():
            if line.startswith("{"):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
        return found

    def said(self, action: str) -> list[dict[str, Any]]:
        """The lines whose action is `action`."""
        return [line for line in self.lines() if line.get("action") == action]

    def children(self) -> list[int]:
        """Its children's process ids: a worker group's master has one per process."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def signal(self, number: Signals) -> None:
        """To this one process."""
        os.kill(self.pid, number)

    def signal_group(self, number: Signals) -> None:
        """To it and all its children, as a supervisor or a terminal does."""
        os.killpg(self.pid, number)

    def wait(self, timeout: float = 30.0) -> int:
        """Its exit code."""
        return self.popen.wait(timeout)

    def end(self) -> None:
        """Kill whatever is left of the group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, SIGKILL)
        self.popen.wait(10)
        self._output.close()


class Fleet:
    """Starts processes on one settings file; ends them all at the end of the test."""

    def __init__(self, folder: Path, dsn: str, broker: str) -> None:
        self.folder = folder
        self.processes: list[Process] = []
        self.extra: dict[str, str] = {}
        """Of the environment of whatever starts from now on."""
        self.config: dict[str, Any] = {
            "database": {"url": dsn},
            "broker": {"url": broker},
            "worker": {"modules": ["steered"]},
            "egress": {"allow_private_targets": True},
        }

    def write(self) -> Path:
        path = self.folder / "vpay.toml"
        path.write_text(_toml(self.config))
        return path

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "VPAY_CONFIG": str(self.write()),
            "PYTHONPATH": str(MODULES),
            **self.extra,
        }

    def start(self, name: str, command: list[str]) -> Process:
        log = self.folder / f"{len(self.processes)}-{name}.log"
        process = Process(name, command, self.environment(), log)
        self.processes.append(process)
        return process

    def dispatcher(self) -> Process:
        return self.start(
            "dispatcher",
            [
                sys.executable,
                "-c",
                "import sys; from vpay_tasks.cli import dispatch;"
                " sys.argv = ['vpay-dispatch']; sys.exit(dispatch())",
            ],
        )

    def workers(
        self,
        *options: str,
        processes: int = 1,
        threads: int = 4,
        queues: list[str] | None = None,
    ) -> Process:
        """One group: a Dramatiq master and its children; `options` are Dramatiq's own."""
        command = [sys.executable, "-m", "dramatiq", "vpay_tasks.actors"]
        command += ["-p", str(processes), "-t", str(threads), *options]
        if queues:
            command += ["-Q", *queues]
        return self.start("workers", command)

    def web(self, *options: str) -> tuple[Process, Client]:
        """The HTTP side on a port of its own; `options` are uvicorn's own."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "vpay_tasks.web:app", "--port", str(port)]
        return self.start("web", [*command, *options]), Client(port)

    def end(self) -> None:
        for process in self.processes:
            process.end()


def _toml(tables: Mapping[str, Any], prefix: str = "") -> str:
    """A settings file's text; nested tables and lists of tables included."""
    plain = {k: v for k, v in tables.items() if not isinstance(v, dict) and not _is_tables(v)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    for key, value in tables.items():
        if isinstance(value, dict):
            lines += [f"[{prefix}{key}]", _toml(value, f"{prefix}{key}.")]
        elif _is_tables(value):
            for item in value:
                lines += [f"[[{prefix}{key}]]", _toml(item, f"{prefix}{key}.")]
    return "\n".join(lines)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)
