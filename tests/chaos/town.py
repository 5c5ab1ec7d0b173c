"""Everything that runs in a soak, and a wire of ours on every edge between."""

from __future__ import annotations

import json
import os
import signal
import string
import sys
import threading
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import psycopg
import redis

from tests import faketime, invariants
from tests.chaos import canaries
from tests.chaos.kept import Kept, children, gone
from tests.chaos.schedule import EDGES
from tests.chaos.vendor import Vendor
from tests.e2e.fleet import MODULES
from tests.e2e.proxy import Proxy
from vpay_sandbox import journal, plan
from vpay_sandbox.control import Control
from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import free_port, wait_until
from vpay_sandbox.program import HOME
from vpay_sandbox.stub import StubProcess
from vpay_sandbox.valkey import Valkey
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect

DISPATCH: Final = (
    sys.executable,
    "-c",
    "import sys; from vpay_tasks.cli import dispatch; sys.exit(dispatch())",
)
QUEUES: Final = {
    "payments": ("payments", "housekeeping", "default"),
    "webhooks": ("webhooks", "inbox", "housekeeping"),
}
THREADS: Final = 6
BOOT_S: Final = 90.0
"""For a process that starts on a machine with other work. Longer only delays the finding."""
TEND_S: Final = 0.1
LIVE: Final = """
SELECT count(*) FROM vpay.workers WHERE NOT draining AND seen_at > now() - interval '2 seconds'
"""


class Town:
    """Started by `with`; whatever ends it, nothing is left running."""

    def __init__(self, folder: Path, seed: int, per_second: float, pulse: str = "lock") -> None:
        self.folder, self.seed, self.per_second, self.pulse = folder, seed, per_second, pulse
        self.artefacts = canaries.artefacts(folder)
        self.artefacts.mkdir()
        self.postgres = Postgres(folder / "postgres")
        self.valkey = Valkey(
            folder / "valkey",
            args=(
                *("--user", canaries.BROKER_USER, "on", f">{canaries.BROKER_PASSWORD}"),
                *("~*", "&*", "+@all"),
            ),
        )
        self.servers = threading.RLock()
        """Held by whoever stops a server, so that no other fault starts it meanwhile."""
        self.wires: dict[str, Proxy] = {}
        self.kept: dict[str, Kept] = {}
        self.stopped: set[int] = set()
        """Processes that a fault has stopped and not let go on yet."""
        self.web_port = free_port()
        self._stubs: dict[str, StubProcess] = {}
        self._open = ExitStack()
        self._tending = threading.Event()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # What the faults and the checks look at.

    def database(self, application: str = "soak") -> psycopg.Connection[Any]:
        """Not over a wire."""
        return psycopg.connect(
            self.postgres.url(), autocommit=True, application_name=application, connect_timeout=5
        )

    def broker(self) -> redis.Redis:
        """Not over a wire, and as a user that needs no password."""
        return redis.Redis.from_url(self.valkey.url(), socket_timeout=5, socket_connect_timeout=5)

    @property
    def rail(self) -> Control:
        return self._stubs["rail"].control

    @property
    def receiver(self) -> Control:
        return self._stubs["receiver"].control

    def journal(self, name: str) -> list[dict[str, Any]]:
        return journal.read(self.folder / f"{name}.jsonl")

    def evidence(self) -> dict[str, Any]:
        """What the outside has kept, for the checker."""
        with self.database() as connection:
            rows = connection.execute(
                "SELECT event_id, count(*) FROM public.effects GROUP BY event_id"
            )
            grants = {("stripe", "", event): times for event, times in rows.fetchall()}
        return {
            "rail": self.journal("rail"),
            "receivers": self.journal("receiver"),
            "producer": [one for one in self.journal("producer") if one["kind"] == "wrote"],
            "vendors": self.journal("vendor"),
            "grants": grants,
            "endpoints": canaries.ENDPOINTS,
            "rungs": len(self._settings()["ladders"]["delivery"]),
        }

    def pid(self, target: str) -> int | None:
        """Of a target's own process: a kept one's, or `… child` of a group's master."""
        name, _, child = target.partition(" ")
        return self.kept[name].child if child else self.kept[name].pid

    def live_workers(self) -> int:
        with self.database() as connection:
            row = connection.execute(LIVE).fetchone()
        return int(row[0]) if row else 0

    # The end of all faults.

    def heal(self) -> None:
        """Whatever is wrong by our doing ends; what has died is being started."""
        for wire in self.wires.values():
            wire.behave()
        for pid in list(self.stopped):
            if not gone(pid):
                os.kill(pid, signal.SIGCONT)
            self.stopped.discard(pid)
        with self.servers:
            self.postgres.start()
            self.valkey.start()
        for stub in (self.rail, self.receiver):
            stub.forget_scripts()
        with self.broker() as client:
            client.config_set("maxmemory", 0)
        self.set_clock(0)

    def set_clock(self, hours: int) -> None:
        """Of the group that sends webhooks, from its next start on; it is told to begin anew if
        that changes anything."""
        group = self.kept["webhooks"]
        path = f"{faketime.SLEEPING}{os.pathsep}{self._python_path()}"
        more = {**faketime.shifted(hours), "PYTHONPATH": path} if hours else {}
        if more != group.more:
            group.more = more
            if (pid := group.pid) is not None:
                os.kill(pid, signal.SIGTERM)

    def is_up(self) -> bool:
        """Every part runs: dispatchers, workers, web."""
        try:
            return self.live_workers() >= len(QUEUES) and all(
                one.pid is not None for name, one in self.kept.items() if name != "producer"
            )
        except psycopg.Error:
            return False

    def resume_producing(self) -> None:
        self.kept["producer"].start()
        self.vendor.start()

    def pause_producing(self) -> None:
        """Returns when what was begun is over, or its process killed."""
        self.vendor.stop()
        self.kept["producer"].stop()

    # Beginning and end.

    def _start(self) -> None:
        self._open.callback(self.postgres.close)
        self.postgres.start()
        self._open.callback(self.valkey.close)
        self.valkey.start()
        with connect(self.postgres.url(), application="soak migrate") as connection:
            migrate.apply(connection)
            invariants.install(connection)
            connection.execute("CREATE TABLE public.effects (event_id text NOT NULL)")
        self._start_stubs()
        self._lay_wires()
        self._write_settings()
        self.vendor = Vendor(self.web_port, self.seed, self.folder / "vendor.jsonl")
        self._open.callback(self.vendor.close)
        self._keep_programs()
        tending = threading.Thread(target=self._tend, name="supervisor", daemon=True)
        self._open.callback(self._stop_programs)
        for name, kept in self.kept.items():
            if name != "producer":
                kept.start()
        tending.start()
        wait_until(self.is_up, "dispatchers, workers and web", timeout_s=BOOT_S, every_s=0.1)

    def _start_stubs(self) -> None:
        config = self.folder / "endpoints.json"
        shaky = {"shaky": 1}
        plan.write_endpoints(
            config,
            [
                Endpoint(m, e, (canaries.webhook_secret(m, e),), fail_first=shaky.get(e, 0))
                for m, e in canaries.ENDPOINTS
            ],
        )
        rail: list[str | Path] = ["--api-user", "soak", "--client-id", "soak"]
        rail += ["--api-key", canaries.MOMO_API_KEY]
        rail += ["--subscription-key", canaries.MOMO_SUBSCRIPTION]
        rail += ["--client-secret", canaries.ORANGE_SECRET]
        rail += ["--merchant-key", canaries.ORANGE_MERCHANT]
        for name, words in (("rail", rail), ("receiver", ["--config", config])):
            log, lines = self.folder / f"{name}.log", self.folder / f"{name}.jsonl"
            stub = StubProcess(f"vpay_sandbox.stub_{name}", ["--journal", lines, *words], log=log)
            self._stubs[name] = stub
            self._open.callback(stub.stop)

    def _lay_wires(self) -> None:
        ends = {"postgres": self.postgres.port, "broker": self.valkey.port}
        ends |= {name: urlsplit(stub.url).port or 0 for name, stub in self._stubs.items()}
        for edge in EDGES:
            self.wires[edge] = Proxy(("127.0.0.1", ends[edge.rpartition("-")[2]]))
            self._open.callback(self.wires[edge].close)

    def _write_settings(self) -> None:
        receiver = f"http://127.0.0.1:{self.wires['worker-receiver'].port}"
        merchants = []
        for merchant in canaries.MERCHANTS:
            merchants.append(
                f'[[merchants]]\nid = "{merchant}"\napi_keys = ["{canaries.api_key(merchant)}"]\n'
            )
            merchants += [
                f'[[merchants.endpoints]]\nid = "{e}"\nurl = "{receiver}/hooks/{m}/{e}"\n'
                f"secrets = {json.dumps([canaries.webhook_secret(m, e)])}\n"
                for m, e in canaries.ENDPOINTS
                if m == merchant
            ]
        template = string.Template(Path(__file__).with_name("chaos.toml").read_text("utf-8"))
        text = template.substitute(
            pulse=self.pulse,
            payer_key=canaries.PAYER_KEY,
            rail_url=f"http://127.0.0.1:{self.wires['worker-rail'].port}",
            web_url=f"http://127.0.0.1:{self.web_port}",
            momo_api_key=canaries.MOMO_API_KEY,
            momo_subscription=canaries.MOMO_SUBSCRIPTION,
            orange_secret=canaries.ORANGE_SECRET,
            orange_merchant=canaries.ORANGE_MERCHANT,
            stripe_secret=canaries.STRIPE_SECRET,
            merchants="\n".join(merchants),
        )
        path = self.folder / "vpay.toml"
        path.touch(mode=0o600)
        path.write_text(text, "utf-8")

    def _settings(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "vpay.toml").read_text("utf-8"))

    def _python_path(self) -> str:
        return f"{HOME}{os.pathsep}{MODULES}"

    def _env(self, role: str) -> Mapping[str, str]:
        """Of a dispatcher, a worker or the producer's side: each has wires of its own."""
        postgres = self.wires[f"{role}-postgres"].port
        broker = self.wires.get(f"{role}-broker", self.wires["worker-broker"]).port
        login = f"{canaries.BROKER_USER}:{canaries.BROKER_PASSWORD}"
        return {
            **os.environ,
            "PYTHONPATH": self._python_path(),
            "VPAY_CONFIG": str(self.folder / "vpay.toml"),
            "VPAY_DATABASE_URL": f"postgresql://postgres:{canaries.DATABASE_PASSWORD}"
            f"@127.0.0.1:{postgres}/postgres",
            "VPAY_BROKER_URL": f"redis://{login}@127.0.0.1:{broker}/0",
        }

    def _keep_programs(self) -> None:
        def keep(name: str, role: str, argv: Sequence[str | Path]) -> None:
            self.kept[name] = Kept(name, lambda: argv, folder=self.artefacts, env=self._env(role))

        for name in ("dispatcher-1", "dispatcher-2"):
            keep(name, "dispatcher", DISPATCH)
        for name, queues in QUEUES.items():
            words = [sys.executable, "-m", "dramatiq", "vpay_tasks.actors", "--processes", "1"]
            keep(name, "worker", [*words, "--threads", str(THREADS), "--queues", *queues])
        web = [sys.executable, "-m", "uvicorn", "vpay_tasks.web:app", "--host", "127.0.0.1"]
        keep("web", "producer", [*web, "--port", str(self.web_port), "--no-access-log"])
        self.kept["producer"] = Kept(
            "producer", self._producing, folder=self.artefacts, env=self._env("producer")
        )

    def _producing(self) -> Sequence[str | Path]:
        """The producer goes on behind the last order that was begun."""
        begun = [one["order"] for one in self.journal("producer") if one["kind"] == "begin"]
        words = [sys.executable, "-m", "tests.chaos.producer", "--seed", str(self.seed)]
        words += ["--first", str(max(begun, default=0) + 1)]
        words += ["--per-second", str(self.per_second)]
        return [*words, "--ledger", str(self.folder / "producer.jsonl")]

    def _tend(self) -> None:
        while not self._tending.wait(TEND_S):
            for kept in self.kept.values():
                kept.tend()

    def _stop_programs(self) -> None:
        """All are told at once, and waited for in turn."""
        self._tending.set()
        for kept in self.kept.values():
            kept.retire()
        for kept in self.kept.values():
            kept.stop()

    def end_programs(self) -> None:
        """In good order, while the servers still run."""
        self._stop_programs()

    def command_lines(self) -> str:
        """Of everything of ours that runs, as anybody on this machine can read them."""
        found = []
        for kept in self.kept.values():
            pid = kept.pid
            for one in [pid, *children(pid)] if pid is not None else []:
                try:
                    words = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ")
                except OSError:
                    continue
                found.append(f"{kept.name} {one}: {words.decode(errors='replace')}")
        return "\n".join(found) + "\n"
