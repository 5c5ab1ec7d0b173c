"""The inbox: signed events kept per second by one server process, and how long an answer takes.

`python bench/inbox.py`. First without anybody who grants: the answer is PENDING as soon as the
event is kept, so this is verify, keep, commit, answer. Then with a dispatcher and a worker:
the answer waits for the verdict. Nothing here is a test; machines are noisy, and the senders
share this one with what they measure: compare ratios within one run.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGTERM
from subprocess import Popen
from typing import Any

from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import end, spawn, wait_until
from vpay_sandbox.valkey import Valkey
from vpay_tasks.store import migrate
from vpay_tasks.store.db import Database, connect

HERE = Path(__file__).resolve().parent
SECRET = "whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2g="
SENDERS = 8
"""At once. More of them fill the machine's cores with themselves."""


class World:
    """Servers, and whatever was started on them."""

    def __init__(self, folder: Path, url: str, broker: str) -> None:
        self.folder = folder
        self.database = Database(url, application="bench")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        config = folder / "vpay.toml"
        text = (
            f'[database]\nurl = "{url}"\n[broker]\nurl = "{broker}"\n'
            '[worker]\nmodules = ["grant"]\n[windows]\ninbox_answer = {answer}\n'
            f'[inbox.stripe]\nscheme = "stripe"\nsecrets = ["{SECRET}"]\n'
        )
        self._config, self._text = config, text
        path = os.pathsep.join([str(HERE), str(HERE.parent)])
        self._env = {**os.environ, "VPAY_CONFIG": str(config), "PYTHONPATH": path}
        self._processes: list[Popen[bytes]] = []

    def serve(self, answer: float) -> None:
        """One server process, which waits `answer` seconds for a verdict."""
        self._config.write_text(self._text.replace("{answer}", str(answer)))
        command = ["-m", "uvicorn", "vpay_tasks.web:app", "--port", str(self.port)]
        self.start("web", *command, "--log-level", "warning")
        wait_until(self._up, "the server")

    def start(self, name: str, *command: str) -> None:
        log = self.folder / f"{name}.log"
        self._processes.append(spawn([sys.executable, *command], env=self._env, log=log))

    def stop(self) -> None:
        for process in reversed(self._processes):
            end(process, SIGTERM)
        self._processes.clear()

    def ask(self, query: str) -> int:
        with self.database.connection() as connection:
            row = connection.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0

    def _up(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            line.request("GET", "/readyz")
            return line.getresponse().status == 200
        return False

    def send(self, count: int, name: str) -> tuple[float, list[float]]:
        """Events a second, and each answer's milliseconds, of `count` different ones."""
        took: list[float] = []
        numbers = iter(range(count))
        lock = threading.Lock()

        def sender() -> None:
            line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                body, headers = signed(f"evt_{name}_{number}")
                begun = time.monotonic()
                line.request("POST", "/inbox/stripe", body, headers)
                answer = line.getresponse()
                answer.read()
                took.append((time.monotonic() - begun) * 1_000)
                assert answer.status == 200, answer.status

        begun = time.monotonic()
        threads = [threading.Thread(target=sender) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return count / (time.monotonic() - begun), took


def signed(id_: str) -> tuple[bytes, dict[str, str]]:
    """An event of a size that Stripe's have (3 kB), each about a payment of its own."""
    about = {"id": f"pi_{id_}", "object": "payment_intent", "note": "n" * 2_800}
    event = {"id": id_, "type": "payment_intent.succeeded", "data": {"object": about}}
    body = json.dumps(event).encode()
    t = str(int(time.time()))
    v1 = hmac.new(SECRET.encode(), t.encode() + b"." + body, hashlib.sha256).hexdigest()
    return body, {"Stripe-Signature": f"t={t},v1={v1}"}


@contextlib.contextmanager
def running() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="vpay-bench-"))
    try:
        with Postgres(folder / "postgres") as server, Valkey(folder / "valkey") as broker:
            with connect(server.url(), application="bench") as connection:
                migrate.apply(connection)
            world = World(folder, server.url(), broker.url())
            try:
                yield world
            finally:
                world.stop()
                world.database.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(world: World, count: int) -> dict[str, Any]:
    world.serve(answer=0.001)
    world.send(200, "warm")
    rate, kept = world.send(count, "kept")
    world.stop()
    with world.database.connection() as connection:
        connection.execute("TRUNCATE vpay.inbox_events, vpay.jobs")
    world.serve(answer=2)
    world.start("dispatch", "-c", "from vpay_tasks.cli import dispatch; dispatch([])")
    world.start("workers", "-m", "dramatiq", "vpay_tasks.actors", "-p", "1", "-t", "8")
    wait_until(lambda: world.ask("SELECT count(*) FROM vpay.workers") == 1, "a worker")
    world.send(50, "warm")
    granted_rate, granted = world.send(max(100, count // 4), "granted")
    wait_until(
        lambda: not world.ask("SELECT count(*) FROM vpay.inbox_events WHERE ended_at IS NULL"),
        "the last grant",
    )
    return {
        "kept_per_s": round(rate),
        "kept_ms": {"p50": p(kept, 50), "p99": p(kept, 99)},
        "granted_per_s": round(granted_rate),
        "granted_ms": {"p50": p(granted, 50), "p99": p(granted, 99)},
    }


def p(values: list[float], percent: int) -> float:
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=4_000)
    arguments = parser.parse_args()
    with running() as world:
        figures = measured(world, arguments.events)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    result = {"at": at, "cores": os.cpu_count(), "senders": SENDERS, **figures}
    (HERE / "results" / "inbox.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
