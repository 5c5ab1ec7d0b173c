"""What is measured: servers, one dispatcher and two worker processes, for as long as it takes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM
from subprocess import Popen
from typing import Any, Final

from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import end, spawn, wait_until
from vpay_sandbox.stub_receiver import StubReceiver
from vpay_sandbox.valkey import Valkey
from vpay_tasks.store import migrate
from vpay_tasks.store.db import Database, connect
from vpay_tasks.store.hints import Hinter

HERE: Final = Path(__file__).resolve().parent

SECRET: Final = "whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2g="
PROCESSES: Final = 2
THREADS: Final = 16
"""What deploy/ starts, too."""


class Fleet:
    """Our processes, a database, and the socket that the tasks of noop.py speak to."""

    def __init__(self, folder: Path, url: str, broker: str, receiver: StubReceiver) -> None:
        self.url = url
        self.broker = broker
        self.folder = folder
        self.receiver = receiver
        self.database = Database(url, application="bench", hints=Hinter(url))
        self._line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._line.bind(("127.0.0.1", 0))
        self._line.settimeout(30)
        config = folder / "vpay.toml"
        config.write_text(
            f'[database]\nurl = "{url}"\n[broker]\nurl = "{broker}"\n'
            '[worker]\nmodules = ["noop"]\n'
            "[egress]\nallow_private_targets = true\n"
            f'[[merchants]]\nid = "m"\n[[merchants.endpoints]]\nid = "e"\n'
            f'url = "{receiver.endpoint_url("m", "e")}"\nsecrets = ["{SECRET}"]\n'
        )
        self._env = {
            **os.environ,
            "VPAY_CONFIG": str(config),
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
            "BENCH_PORT": str(self._line.getsockname()[1]),
            "BENCH_FOLDER": str(folder),
        }
        self._dispatcher: Popen[bytes] | None = None
        self._workers: list[Popen[bytes]] = []

    def start(self) -> None:
        """Returns when the workers are known to be there."""
        dispatch = "from vpay_tasks.cli import dispatch; dispatch([])"
        self._dispatcher = self._spawn("dispatch", "-c", dispatch)
        self._workers = [self._worker() for _ in range(PROCESSES)]
        self._wait_for_workers()

    def stop(self) -> None:
        """End our processes; the database can still be asked."""
        for process in [*self._workers, *([self._dispatcher] if self._dispatcher else [])]:
            end(process, SIGTERM)
        self._workers, self._dispatcher = [], None

    def kill_worker(self, pid: int) -> None:
        """kill -9, to the process and to whoever started it."""
        os.killpg(os.getpgid(pid), SIGKILL)

    def replace_the_dead(self) -> None:
        for n, process in enumerate(self._workers):
            if process.poll() is not None:
                self._workers[n] = self._worker()
        self._wait_for_workers()

    def heard(self) -> tuple[int, int, int]:
        """What a task said next: its number, its instant in nanoseconds, its process."""
        n, at, pid = struct.unpack("!qqq", self._line.recv(24))
        return n, at, pid

    def ask(self, query: str) -> int:
        with self.database.connection() as connection:
            row = connection.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0

    def _worker(self) -> Popen[bytes]:
        command = ("-m", "dramatiq", "vpay_tasks.actors", "-p", "1", "-t", str(THREADS))
        return self._spawn("workers", *command)

    def _wait_for_workers(self) -> None:
        alive = (
            "SELECT count(*) FROM vpay.workers"
            " WHERE holds_lock AND NOT draining AND seen_at > now() - interval '0.9 s'"
        )
        wait_until(lambda: self.ask(alive) == PROCESSES, "the workers")

    def _spawn(self, name: str, *command: str) -> Popen[bytes]:
        log = self.folder / f"{name}.log"
        return spawn([sys.executable, *command], env=self._env, log=log)


@contextlib.contextmanager
def running(broker: Any = Valkey) -> Iterator[Fleet]:
    """A fleet on servers of its own; `broker` is Valkey or Rabbit."""
    folder = Path(tempfile.mkdtemp(prefix="vpay-bench-"))
    endpoint = Endpoint("m", "e", secrets=(SECRET,))
    try:
        with (
            Postgres(folder / "postgres") as server,
            broker(folder / "broker") as carrier,
            StubReceiver([endpoint], journal=folder / "receiver.jsonl") as receiver,
        ):
            with connect(server.url(), application="bench") as connection:
                migrate.apply(connection)
            fleet = Fleet(folder, server.url(), carrier.url(), receiver)
            try:
                fleet.start()
                yield fleet
            finally:
                fleet.stop()
                fleet.database.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
