"""The project's figures, measured on this machine: `make bench`.

Real processes on the sandbox's Postgres (fsync and synchronous_commit on) and Valkey, and
RabbitMQ where it is installed: one dispatcher, two worker processes. Machines are noisy:
compare ratios within one run. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import matplotlib.pyplot as plt
from drain import drained
from fleet import PROCESSES, THREADS, Fleet, running
from peers import Peers

from tests.rabbit import RABBITMQ, Rabbit
from vpay_tasks.core.task import Kind
from vpay_tasks.store import events, jobs

HERE = Path(__file__).resolve().parent
mpl.use("agg")

TOLD: Final = (
    ("commit_to_start_ms", "commit → handler begins, idle, ms"),
    ("commit_to_start_rabbitmq_ms", "the same by RabbitMQ"),
    ("event_to_post_ms", "event committed → POST arrives, idle, ms"),
    ("kill_to_restart_ms", "kill -9 of a worker → its job runs again, ms"),
    ("noop_jobs_per_s", "no-op drain, jobs/s"),
    ("peers_noop_per_s", "peers' no-op drain, jobs/s"),
    ("per_job_batch_1", "no-op one by one, per job"),
    ("per_job_batch_32", "no-op by 32, per job"),
)


def enqueue(fleet: Fleet, kind: str, n: int) -> int:
    """Enqueue it in a transaction of its own; the instant after its commit, in ns."""
    with fleet.database.transaction() as tx:
        jobs.enqueue(tx, Kind(kind), {"n": n})
    return time.monotonic_ns()


def commit_to_start(fleet: Fleet, rounds: int) -> list[float]:
    """Milliseconds from a commit's return to the handler's first line, fleet idle."""
    took = []
    for n in range(rounds):
        committed = enqueue(fleet, "stamp", n)
        seen, began, _ = fleet.heard()
        assert seen == n
        took.append((began - committed) / 1e6)
        time.sleep(0.03 + 0.04 * (n % 7) / 7)  # idle, and out of step with any poll
    return took


def event_to_post(fleet: Fleet, rounds: int) -> list[float]:
    """Milliseconds from the commit of an event to its arrival at the receiver, idle."""
    took = []
    for n in range(rounds):
        id_ = f"evt_bench{n:019}"
        with fleet.database.transaction() as tx:
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
        fleet.receiver.wait_requests("/hooks/m/e", n + 1, done=True)
        took.append(fleet.receiver.requests("/hooks/m/e")[-1].request.at_ms - committed)
        time.sleep(0.05 + 0.04 * (n % 7) / 7)
    return took


def kill_to_restart(fleet: Fleet, rounds: int) -> list[float]:
    """Milliseconds from kill -9 of the worker that runs a job to the job's next beginning, in
    the other worker; then the dead one is replaced."""
    took = []
    for n in range(rounds):
        enqueue(fleet, "held", n)
        _, _, pid = fleet.heard()
        (fleet.folder / f"killed-{n}").touch()
        killed = time.monotonic_ns()
        fleet.kill_worker(pid)
        seen, began, other = fleet.heard()
        assert (seen, other != pid) == (n, True)
        took.append((began - killed) / 1e6)
        fleet.replace_the_dead()
    return took


def drain(fleet: Fleet, name: str, count: int) -> float:
    """Jobs/s of `count` no-ops that are inserted at once."""
    with fleet.database.connection() as connection:
        connection.execute(
            b"INSERT INTO vpay.jobs (queue, kind, payload)"
            b" SELECT 'default', %s, '{}' FROM generate_series(1, %s)",
            (name, count),
        )
    left = "SELECT count(*) FROM vpay.jobs WHERE queue = 'default'"
    return drained(name, count, lambda: fleet.ask(left))


def drain_and_cost(fleet: Fleet, name: str, count: int) -> tuple[int, dict[str, float]]:
    """The rate, and what Postgres counted per job – the insert, our looks and whatever else
    it did meanwhile included."""
    counted = {
        "commits": "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()",
        "wal_bytes": "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn",
    }
    before = {what: fleet.ask(query) for what, query in counted.items()}
    rate = drain(fleet, name, count)
    cost = {what: (fleet.ask(counted[what]) - was) / count for what, was in before.items()}
    return round(rate), {what: round(each, 3) for what, each in cost.items()}


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1), "of": len(values)}


def ours(fleet: Fleet, scale: float) -> dict[str, Any]:
    rounds = max(20, int(200 * scale))
    commit_to_start(fleet, 10)  # prepared statements, warm caches
    starts = commit_to_start(fleet, rounds)
    posts = event_to_post(fleet, rounds)
    drain(fleet, "noop_batch", 2_000)
    single, single_cost = drain_and_cost(fleet, "noop", max(1_000, int(10_000 * scale)))
    batch, batch_cost = drain_and_cost(fleet, "noop_batch", max(5_000, int(60_000 * scale)))
    kills = kill_to_restart(fleet, max(5, int(20 * scale)))
    return {
        "commit_to_start_ms": spread(starts),
        "event_to_post_ms": spread(posts),
        "kill_to_restart_ms": spread(kills),
        "noop_jobs_per_s": {"batch_1": single, "batch_32": batch},
        "per_job_batch_1": single_cost,
        "per_job_batch_32": batch_cost,
    }


def of_rabbitmq(scale: float) -> dict[str, Any]:
    """The idle start once more, over the other broker."""
    if RABBITMQ is None:
        print("RabbitMQ is not installed (apt-get install rabbitmq-server): left out.\n")
        return {}
    with running(Rabbit) as fleet:
        commit_to_start(fleet, 10)
        starts = commit_to_start(fleet, max(20, int(200 * scale)))
    return {"commit_to_start_rabbitmq_ms": spread(starts)}


def of_peers(fleet: Fleet, scale: float) -> dict[str, int]:
    """Jobs/s of the peers, a second Postgres database and other Valkey databases being theirs."""
    with fleet.database.connection() as connection:
        connection.execute("CREATE DATABASE peers")
    peers = Peers(fleet.folder, fleet.url.rsplit("/", 1)[0] + "/peers", fleet.broker)
    return {
        "celery": round(peers.celery(max(1_000, int(5_000 * scale)))),
        "dramatiq_raw": round(peers.dramatiq(max(1_000, int(10_000 * scale)))),
        "pgqueuer_10": round(peers.pgqueuer(max(2_000, int(20_000 * scale)), 10)),
        "pgqueuer_200": round(peers.pgqueuer(max(4_000, int(60_000 * scale)), 200)),
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
    load = os.getloadavg()[0]
    with running() as fleet:
        figures = ours(fleet, scale)
        fleet.stop()  # the others get the machine for themselves, as we had it
        if arguments.peers:
            figures["peers_noop_per_s"] = of_peers(fleet, scale)
    figures |= of_rabbitmq(scale)
    machine = (
        f"{os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()}"
    )
    print(f"Measured on {machine}, load {load:.1f} before it began; 1 dispatcher, {PROCESSES}")
    print(f"worker processes of {THREADS} threads; Postgres with fsync and synchronous_commit on.")
    print("Noisy machine: compare ratios.\n")
    for what, unit in TOLD:
        if what in figures:
            parts = "   ".join(f"{name} {value:>8,}" for name, value in figures[what].items())
            print(f"  {unit:<46}{parts}")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    result = {"at": at, "machine": machine, "load_before": round(load, 1), **figures}
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "latest.json").write_text(json.dumps(result, indent=2) + "\n")
    picture(result, HERE / "results" / "latest.png")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
