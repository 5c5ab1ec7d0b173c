"""A real Postgres of our own, from the wheel or another version's package, as root or not."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from vpay_sandbox import install, versions
from vpay_sandbox.process import SandboxError, end, free_port, spawn, tail, wait_until

StopMode = Literal["fast", "immediate"]
SIGNALS: Mapping[StopMode, signal.Signals] = MappingProxyType(
    {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
)
# Enough for four dispatchers, sixteen worker processes and a test's own connections.
DEFAULTS: Mapping[str, str] = MappingProxyType({"max_connections": "200", "timezone": "UTC"})
# Another process may bind the port between our look and the server's start.
PORT_TRIES = 10
HBA = """\
host all         all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""


class Postgres:
    """One server on 127.0.0.1, superuser `postgres`, no password, UTF8, locale C.

    `folder` gets `postgres.log` and, when the user that the server runs as can reach it, `data`;
    otherwise the data lies in a private folder (`.data`) that close() removes. Data that is
    already in `folder/data` is used again. fsync is on unless `settings` says otherwise; settings
    are server parameters by name. `version` is a major one; other than the wheel's are fetched.
    `initdb` are further words for the program of that name.
    A server dies with this process, even by kill -9.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        version: int = versions.WHEEL,
        initdb: Sequence[str] = (),
    ) -> None:
        self._folder = folder.resolve()
        self._initdb = initdb
        self._version = version
        self._wanted_port = port
        self._settings = {**DEFAULTS, **settings}
        self._account = install.unprivileged()
        self._private: install.PrivateFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._data: Path | None = None
        self._port = port
        self._bin: Path | None = None
        self.log = self._folder / "postgres.log"

    @property
    def port(self) -> int:
        if self._port is None:
            raise SandboxError("Postgres has no port before its first start")
        return self._port

    @property
    def data(self) -> Path:
        """The data folder; chosen by the first start."""
        if self._data is None:
            raise SandboxError("Postgres has no data folder before its first start")
        return self._data

    @property
    def pid(self) -> int | None:
        """The postmaster's pid while it runs."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process else None

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    def bin(self, name: str) -> Path:
        """A program of this Postgres: psql, pg_dump, pgbench…"""
        if self._bin is None:
            self._bin = (
                install.postgres_bin(self._account)
                if self._version == versions.WHEEL
                else versions.postgres_bin(self._version, self._account)
            )
        path = self._bin / name
        if not path.is_file():
            raise SandboxError(f"this Postgres has no program {name}")
        return path

    def start(self) -> Self:
        """Returns when connections are accepted; SandboxError with the log's end if they won't."""
        if self.pid is None:
            made_here = self._private is None
            try:
                self._start()
            except BaseException:
                if made_here:  # nothing of a first start that failed is worth keeping
                    self._remove_private()
                raise
        return self

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._data is None:
            self._data = self._choose_data()
        if not (self._data / "PG_VERSION").exists():
            self._make_data()
        for _ in range(PORT_TRIES):
            # A restart keeps the port: clients hold its URL.
            first_start = self._port is None
            self._port = self._port or free_port()
            if self._launch():
                return
            if not first_start or "Address already in use" not in tail(self.log):
                break
            self._port = None
        raise SandboxError(f"Postgres did not start; the end of {self.log}:\n{tail(self.log)}")

    def stop(self, mode: StopMode = "fast") -> None:
        """fast: rolls back what is open, writes a checkpoint. immediate: a crash, for the data."""
        if self._process is not None:
            end(self._process, SIGNALS[mode])
            self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        """Same port, same data."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """kill -9 of the postmaster and of every backend; returns when all are gone.

        A backend left behind would keep the shared memory, and the next start would be refused.
        """
        if self.pid is None or self._process is None:
            return
        os.kill(self._process.pid, signal.SIGSTOP)  # no new backend while we count
        backends = _children(self._process.pid)
        for pid in (self._process.pid, *backends):
            _kill(pid)
        self._process.wait()
        self._process = None
        wait_until(lambda: not any(_running(pid) for pid in backends), "Postgres' backends to end")

    def close(self) -> None:
        """Stops at once, and removes the data if it is in a private folder."""
        self.stop("immediate")
        self._remove_private()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _remove_private(self) -> None:
        if self._private is not None:
            self._private.remove()
            self._private = self._data = None

    def _choose_data(self) -> Path:
        if self._account is None or install.reachable(self._folder, self._account):
            return self._folder / "data"
        self._private = install.PrivateFolder(self._account)
        return self._private.path / "data"

    def _env(self) -> dict[str, str]:
        # Nothing of the caller's PG* variables, locale or library path may reach the server.
        return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

    def _make_data(self) -> None:
        """Made beside and renamed: half a cluster is never taken for a whole one."""
        part = self.data.with_suffix(".part")
        if part.exists():
            shutil.rmtree(part)
        part.mkdir(mode=0o700)
        if self._account is not None:
            os.chown(part, self._account.uid, self._account.gid)
        self._fill(part)
        part.rename(self.data)

    def _fill(self, part: Path) -> None:
        """A new cluster in the empty folder `part`."""
        self._tool(
            self.bin("initdb"),
            *("-D", part, "-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "trust"),
            *("--no-sync", "--no-instructions", *self._initdb),
        )
        (part / "pg_hba.conf").write_text(HBA)

    def _tool(self, *argv: str | Path) -> None:
        """Runs a program of this Postgres to its end, as the server's user."""
        done = spawn(argv, log=self.log, env=self._env(), account=self._account).wait()
        if done != 0:
            name = Path(argv[0]).name
            raise SandboxError(f"{name} failed; the end of {self.log}:\n{tail(self.log)}")

    def _launch(self) -> bool:
        """True when ready, False when the server gave up."""
        settings = {
            **self._settings,
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            # TCP only: a socket path has a length limit that a deep folder breaks.
            "unix_socket_directories": "",
        }
        argv: list[str | Path] = [self.bin("postgres"), "-D", self.data]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        # SIGQUIT: backends end at once and the shared memory is given back, unlike after SIGKILL.
        process = self._process = spawn(
            argv, log=self.log, death=signal.SIGQUIT, env=self._env(), account=self._account
        )
        try:
            wait_until(
                lambda: process.poll() is not None or _is_ready(self.data, process.pid),
                f"Postgres to accept connections (log: {self.log})",
                timeout_s=60.0,
            )
        except BaseException:
            self.stop("immediate")
            raise
        if process.poll() is None:
            return True
        self._process = None
        return False


def _is_ready(data: Path, pid: int) -> bool:
    """The postmaster writes its state into line 8 of postmaster.pid; line 1 tells whose it is."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _children(pid: int) -> list[int]:
    """Direct children, by /proc: `task/*/children` is not there on every kernel."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat is not None and int(stat[1]) == pid:
                found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str] | None:
    """state, ppid, … of a process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _running(pid: int) -> bool:
    """Gone or a zombie is not running: a container without a reaper keeps zombies for ever."""
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
