"""All of it as real processes: servers, stubs, dispatcher, web app, two worker groups."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psycopg

from vpay_sandbox import momo, orange, plan
from vpay_sandbox.control import Control
from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import SandboxError, free_port, tail, wait_until
from vpay_sandbox.program import KILL_S, PATIENCE_S, Program, command
from vpay_sandbox.stub import StubProcess
from vpay_sandbox.valkey import Valkey

# Dramatiq masters; each serves every queue. Two, so that one can die and the other goes on.
GROUPS = 2
# Handlers wait for the network; two groups of four are far above what two cores can fill.
THREADS = 4
# A cold disk and a busy machine included.
START_S = 60.0
WORKERS = "SELECT count(*) FROM vpay.workers WHERE NOT draining"


class System:
    """Started by `with`; whatever ends it, nothing is left. Logs, settings and journals lie in
    `folder`. `say` hears what is being started."""

    def __init__(
        self,
        folder: Path,
        endpoints: Sequence[Endpoint],
        *,
        rail_sabotage: Literal["two-effects"] | None = None,
        receiver_sabotage: Literal["drop-one", "wrong-secret"] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self.endpoints = endpoints
        self.settings = folder / "vpay.toml"
        self.rail_journal = folder / "rail.jsonl"
        self.receiver_journal = folder / "receiver.jsonl"
        self.metrics_port, self.web_port = free_port(), free_port()
        self.postgres = Postgres(folder / "postgres")
        self.valkey = Valkey(folder / "valkey")
        self._sabotage = (rail_sabotage, receiver_sabotage)
        self._say = say
        self._stubs: dict[str, StubProcess] = {}
        self._programs: list[Program] = []
        self._open = ExitStack()

    @property
    def database_url(self) -> str:
        return self.postgres.url()

    def env(self) -> Mapping[str, str]:
        return {**os.environ, "VPAY_CONFIG": str(self.settings)}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def start(self, name: str, argv: Sequence[str | Path]) -> Program:
        """A command that runs beside the rest and ends with it."""
        return Program(name, argv, folder=self.folder, env=self.env())

    @property
    def rail(self) -> Control:
        return self._stubs["rail"].control

    def kill_workers(self, pid: int) -> str:
        """kill -9 for the group of workers that the process `pid` is of; a fresh one takes its
        place, as under any supervisor. Returns the group's name."""
        os.killpg(os.getpgid(pid), signal.SIGKILL)
        wait_until(lambda: self._killed() is not None, f"the end of {pid}", timeout_s=KILL_S)
        number, gone = self._killed() or (0, self._programs[0])
        self._programs[number] = self.start(gone.name, gone.argv)
        return gone.name

    def _killed(self) -> tuple[int, Program] | None:
        for number, program in enumerate(self._programs):
            if program.exit_code == 128 + signal.SIGKILL:
                return number, program
        return None

    def check(self) -> None:
        """SandboxError, naming it, when a part has ended by itself."""
        for program in self._programs:
            if program.exit_code is not None:
                raise program.died()
        servers = {"postgres": (self.postgres.pid, self.postgres.log)}
        servers["valkey"] = (self.valkey.pid, self.valkey.log)
        for name, stub in self._stubs.items():
            servers[name] = (stub.pid if stub.alive() else None, self.folder / f"{name}.log")
        for name, (pid, log) in servers.items():
            if pid is None:
                raise SandboxError(f"{name} ended by itself; the end of {log}:\n{tail(log)}")

    def _start(self) -> None:
        self._say("starting Postgres")
        self._open.callback(self.postgres.close)
        self.postgres.start()
        self._say("starting Valkey, the rail and the merchants' receiver")
        self._open.callback(self.valkey.close)
        self.valkey.start()
        self._start_stubs()
        self._write_settings()
        self._say("creating the tables")
        self._migrate()
        self._say("starting the dispatcher, the web app and two groups of workers")
        self._start_programs()
        wait_until(self._ready, "dispatcher, web app and workers", timeout_s=START_S, every_s=0.05)

    def _start_stubs(self) -> None:
        config = self.folder / "endpoints.json"
        plan.write_endpoints(config, self.endpoints)
        on_rail, on_receiver = self._sabotage
        self._start_stub("rail", self.rail_journal, on_rail, [])
        self._start_stub("receiver", self.receiver_journal, on_receiver, ["--config", config])

    def _start_stub(
        self, name: str, journal: Path, sabotage: str | None, more: Sequence[str | Path]
    ) -> None:
        words = ["--journal", journal, *more]
        if sabotage is not None:
            words += ["--sabotage", sabotage]
        stub = StubProcess(f"vpay_sandbox.stub_{name}", words, log=self.folder / f"{name}.log")
        self._stubs[name] = stub
        self._open.callback(stub.stop)

    def _write_settings(self) -> None:
        keys, others = momo.Credentials(), orange.OrangeCredentials()
        rail_url = self._stubs["rail"].url
        plan.write_settings(
            self.settings,
            self.endpoints,
            self._stubs["receiver"].url,
            database_url=self.database_url,
            broker_url=self.valkey.url(),
            metrics_port=self.metrics_port,
            web_url=f"http://127.0.0.1:{self.web_port}",
            rail_url=rail_url,
            api_user=keys.api_user,
            api_key=keys.api_key,
            subscription_key=keys.subscription_key,
            redirect_url=f"{rail_url}{orange.BASE}",
            client_id=others.client_id,
            client_secret=others.client_secret,
            merchant_key=others.merchant_key,
        )

    def _migrate(self) -> None:
        program = self.start("migrate", [*command("vpay-tasks", "main"), "migrate"])
        try:
            if program.wait(timeout_s=START_S) != 0:
                raise program.died()
        finally:
            program.stop(patience_s=0.0)

    def _start_programs(self) -> None:
        self._open.callback(self._stop_programs)
        self._programs.append(self.start("dispatcher", command("vpay-dispatch", "dispatch")))
        web = [sys.executable, "-m", "uvicorn", "vpay_tasks.web:app", "--host", "127.0.0.1"]
        self._programs.append(self.start("web", [*web, "--port", str(self.web_port)]))
        workers = [sys.executable, "-m", "dramatiq", "vpay_tasks.actors"]
        workers += ["--processes", "1", "--threads", str(THREADS)]
        for number in range(1, GROUPS + 1):
            self._programs.append(self.start(f"workers-{number}", workers))

    def _stop_programs(self) -> None:
        """All are told at once, and waited for in turn."""
        for program in self._programs:
            program.tell_to_stop()
        for program in self._programs:
            program.stop(patience_s=PATIENCE_S)

    def _ready(self) -> bool:
        self.check()
        with psycopg.connect(self.database_url) as connection:
            row = connection.execute(WORKERS).fetchone()
        there = row is not None and row[0] >= GROUPS
        return there and all(map(_listens, (self.metrics_port, self.web_port)))


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False
