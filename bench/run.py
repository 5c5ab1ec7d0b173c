"""The project's figures, measured on this machine: `make bench`.

Real processes on the sandbox's Postgres (fsync and synchronous_commit on) and Valkey: one
dispatcher, two worker groups. Machines are noisy: compare ratios within one run. Nothing
here is a test.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGTERM
from subprocess import Popen
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from peers import Peers

from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import end, spawn, wait_until
from vpay_sandbox.stub_receiver import StubReceiver
from vpay_sandbox.valkey import Valkey
from vpay_tasks.core.task import Kind
from vpay_tasks.store import events, jobs, migrate
from vpay_tasks.store.db import Database, connect
from vpay_tasks.store.hints import Hinter

HERE = Path(__file__).resolve().parent
mpl.use("agg")

SECRET = "whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2g="
THREADS = 8


class Bench:
    """Servers, processes and a database, for as long as the figures take."""

    def __init__(self, folder: Path, url: str, broker: str, receiver: StubReceiver) -> None:
        self.url = url
        self.broker = broker
        self.folder = folder
        self.receiver = receiver
        self.database = Database(url, application="bench", hints=Hinter(url))
        self.line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.line.bind(("127.0.0.1", 0))
        self.line.settimeout(10)
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
            "BENCH_PORT": str(self.line.getsockname()[1]),
        }
        self._folder = folder
        self._processes: list[Popen[bytes]] = []

    def start(self, name: str, *command: str) -> None:
        self._processes.append(
            spawn([sys.executable, *command], env=self._env, log=self._folder / f"{name}.log")
        )

    def stop(self) -> None:
        """End our processes; the database can still be asked."""
        for process in reversed(self._processes):
            end(process, SIGTERM)
        self._processes.clear()

    def ask(self, query: str) -> int:
        with self.database.connection() as connection:
            row = connection.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0

    def totals(self) -> dict[str, int]:
        """What Postgres has counted so far, our own looking included."""
        commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        wal = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
        return {"commits": self.ask(commits), "wal_bytes": self.ask(wal)}

    def commit_to_start(self, rounds: int) -> list[float]:
        """Milliseconds from a commit's return to the handler's first line, fleet idle."""
        took = []
        kind = Kind("stamp")
        for n in range(rounds):
            with self.database.transaction() as tx:
                jobs.enqueue(tx, kind, {"n": n})
            committed = time.monotonic_ns()
            seen, began = struct.unpack("!qq", self.line.recv(16))
            assert seen == n
            took.append((began - committed) / 1e6)
            time.sleep(0.03 + 0.04 * (n % 7) / 7)  # idle, and out of step with any poll
        return took

    def event_to_post(self, rounds: int) -> list[float]:
        """Milliseconds from the commit of an event to its arrival at the receiver, idle."""
        took = []
        for n in range(rounds):
            id_ = f"evt_bench{n:019}"
            with self.database.transaction() as tx:
                events.append(
                    tx,
                    event_id=id_,
                    merchant_id="m",
                    type="payment_intent.succeeded",
                    object_id="pi_bench",
                    customer_id=None,
                    livemode=False,
                    body=json.dumps({"id": id_}).encode(),
                )
            committed = time.time() * 1_000
            self.receiver.wait_requests("/hooks/m/e", n + 1, done=True)
            took.append(self.receiver.requests("/hooks/m/e")[-1].request.at_ms - committed)
            time.sleep(0.05 + 0.04 * (n % 7) / 7)
        return took

    def drain(self, name: str, count: int) -> float:
        """Jobs a second: `count` no-ops inserted at once, until the last row is gone."""
        with self.database.connection() as connection:
            connection.execute(
                b"INSERT INTO vpay.jobs (queue, kind, payload)"
                b" SELECT 'default', %s, '{}' FROM generate_series(1, %s)",
                (name, count),
            )
        begun = time.monotonic()
        while self.ask("SELECT count(*) FROM vpay.jobs WHERE queue = 'default'"):
            time.sleep(0.02)
        return count / (time.monotonic() - begun)


@contextlib.contextmanager
def running() -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="vpay-bench-"))
    endpoint = Endpoint("m", "e", secrets=(SECRET,))
    try:
        with (
            Postgres(folder / "postgres") as server,
            Valkey(folder / "valkey") as broker,
            StubReceiver([endpoint], journal=folder / "receiver.jsonl") as receiver,
        ):
            with connect(server.url(), application="bench") as connection:
                migrate.apply(connection)
            bench = Bench(folder, server.url(), broker.url(), receiver)
            try:
                bench.start("dispatch", "-c", "from vpay_tasks.cli import dispatch; dispatch([])")
                for n in range(2):
                    command = ("-m", "dramatiq", "vpay_tasks.actors", "-p", "1")
                    bench.start(f"workers-{n}", *command, "-t", str(THREADS))
                workers = "SELECT count(*) FROM vpay.workers"
                wait_until(lambda: bench.ask(workers) == 2, "two workers")
                yield bench
            finally:
                bench.stop()
                bench.database.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def p(values: list[float], percent: int) -> float:
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 1)


def of_peers(bench: Bench, scale: float) -> dict[str, int]:
    """Jobs/s of the peers, a second Postgres database and other Valkey databases being theirs."""
    with bench.database.connection() as connection:
        connection.execute("CREATE DATABASE peers")
    peers = Peers(bench.folder, bench.url.rsplit("/", 1)[0] + "/peers", bench.broker)
    return {
        "celery": round(peers.celery(max(1_000, int(5_000 * scale)))),
        "dramatiq_raw": round(peers.dramatiq(max(1_000, int(10_000 * scale)))),
        "pgqueuer_10": round(peers.pgqueuer(max(2_000, int(20_000 * scale)), 10)),
        "pgqueuer_200": round(peers.pgqueuer(max(4_000, int(60_000 * scale)), 200)),
    }


def measured(bench: Bench, scale: float) -> dict[str, Any]:
    rounds = max(20, int(200 * scale))
    bench.commit_to_start(10)  # prepared statements, warm caches
    starts = bench.commit_to_start(rounds)
    bench.drain("noop_batch", 2_000)
    single = bench.drain("noop", max(1_000, int(10_000 * scale)))
    before = bench.totals()
    count = max(5_000, int(60_000 * scale))
    batch = bench.drain("noop_batch", count)
    cost = {name: round((bench.totals()[name] - was) / count, 3) for name, was in before.items()}
    posts = bench.event_to_post(rounds)
    return {
        "commit_to_start_ms": {"p50": p(starts, 50), "p99": p(starts, 99)},
        "event_to_post_ms": {"p50": p(posts, 50), "p99": p(posts, 99)},
        "noop_jobs_per_s": {"batch_1": round(single), "batch_32": round(batch)},
        "per_job": cost,
    }


def picture(result: dict[str, Any], to: Path) -> None:
    """The drains as bars, ours and the peers'."""
    bars = {f"vpay {name}": rate for name, rate in result["noop_jobs_per_s"].items()}
    bars |= result.get("peers_noop_per_s", {})
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    drawn = axes.barh(list(bars), list(bars.values()))
    axes.bar_label(drawn, fmt="{:,.0f}", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(f"no-op jobs per second ({result['machine']})")
    figure.savefig(to, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full rounds")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="only our own")
    arguments = parser.parse_args()
    scale = arguments.scale
    with running() as bench:
        figures = measured(bench, scale)
        if arguments.peers:
            bench.stop()  # the peers get the machine for themselves, as we had it
            figures["peers_noop_per_s"] = of_peers(bench, scale)
    machine = (
        f"{os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()}"
    )
    print(f"Measured on {machine}; 1 dispatcher, 2 worker processes of {THREADS} threads;")
    print("Postgres with fsync and synchronous_commit on. Noisy machine: compare ratios.\n")
    for what, unit in (
        ("commit_to_start_ms", "commit → handler begins, idle, ms"),
        ("event_to_post_ms", "event committed → POST arrives, idle, ms"),
        ("noop_jobs_per_s", "no-op drain, jobs/s"),
        ("peers_noop_per_s", "peers' no-op drain, jobs/s"),
        ("per_job", "of a batch of 32, per job"),
    ):
        if what not in figures:
            continue
        parts = "   ".join(f"{name} {value:>8,}" for name, value in figures[what].items())
        print(f"  {unit:<44}{parts}")
    result = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine, **figures}
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "latest.json").write_text(json.dumps(result, indent=2) + "\n")
    picture(result, HERE / "results" / "latest.png")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
