"""Deliveries: how many a second beside a bare actor, and what a bad neighbour costs the others.

`python bench/deliveries.py`. Twelve threads in two processes each; 20 % of the endpoints fail
(500), 10 % take half a second. A rate runs from the first to the last first attempt, as the
receiver saw them. Nothing here is a test; machines are noisy: compare ratios within one run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGKILL, SIGTERM
from subprocess import Popen

from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import end, spawn, wait_until
from vpay_sandbox.valkey import Valkey
from vpay_tasks.store import events, migrate
from vpay_tasks.store.db import Database, connect
from vpay_tasks.store.hints import Hinter

HERE = Path(__file__).resolve().parent
SECRET = "whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2g="
ENDPOINTS = ["fail"] * 6 + ["slow"] * 3 + ["ok"] * 21
BODY = json.dumps({"id": "evt_bench", "object": "event", "note": "n" * 700})
THREADS = ("-p", "2", "-t", "6")
PATIENCE_S = 600.0


class World:
    """Servers, a receiver and its journal, and whatever was started on them."""

    def __init__(self, folder: Path, url: str, broker: str) -> None:
        self.folder = folder
        self.database = Database(url, application="bench", hints=Hinter(url))
        self.broker = broker
        self.journal = folder / "journal"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config = folder / "vpay.toml"
        config.write_text(
            f'[database]\nurl = "{url}"\n[broker]\nurl = "{broker}"\n'
            "[egress]\nallow_private_targets = true\n"
            # First attempts alone are measured: the peer makes no others.
            "[ladders]\ndelivery = [3600]\n" + self._merchants()
        )
        self._env = {
            **os.environ,
            "VPAY_CONFIG": str(config),
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
            "BENCH_BROKER": f"{broker.rsplit('/', 1)[0]}/3",
            "BENCH_SECRET": SECRET,
        }
        self._processes: list[Popen[bytes]] = []

    def _merchants(self) -> str:
        kinds = [*ENDPOINTS, "hang"]
        return "".join(
            f'[[merchants]]\nid = "m{n}"\n[[merchants.endpoints]]\nid = "e"\n'
            f'url = "{self.url(kind, n)}"\nsecrets = ["{SECRET}"]\n'
            for n, kind in enumerate(kinds)
        )

    def url(self, kind: str, number: int) -> str:
        return f"http://127.0.0.1:{self.port}/{kind}/{number}"

    def start(self, name: str, *command: str) -> None:
        log = self.folder / f"{name}.log"
        self._processes.append(spawn([sys.executable, *command], env=self._env, log=log))

    def receive(self) -> None:
        """The receiver, with an empty journal."""
        self.start("receiver", str(HERE / "receiver.py"), str(self.port), str(self.journal))
        wait_until(lambda: _answers(self.port), "the receiver")

    def work(self, *queues: str) -> None:
        """A dispatcher, and workers of these queues (none named: of all)."""
        self.start("dispatch", "-c", "from vpay_tasks.cli import dispatch; dispatch([])")
        chosen = ("-Q", *queues) if queues else ()
        self.start("workers", "-m", "dramatiq", "vpay_tasks.actors", *THREADS, *chosen)

    def stop(self, *, kill: bool = False) -> None:
        for process in reversed(self._processes):
            if kill:
                os.killpg(process.pid, SIGKILL)
                process.wait()
            else:
                end(process, SIGTERM)
        self._processes.clear()

    def seen(self) -> list[tuple[int, str, str]]:
        """When, path, event, of the journal's whole lines."""
        text = self.journal.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [(int(at), path, event) for at, path, event in map(str.split, lines)]

    def run(self, query: str, *params: object) -> None:
        with self.database.connection() as connection:
            connection.execute(query.encode(), params)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="vpay-bench-"))
    try:
        with Postgres(folder / "postgres") as server, Valkey(folder / "valkey") as broker:
            with connect(server.url(), application="bench") as connection:
                migrate.apply(connection)
            made = World(folder, server.url(), broker.url())
            try:
                yield made
            finally:
                made.stop()
                made.database.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def queue_up(world: World, prefix: str, numbers: list[int]) -> None:
    """A delivery for each number, to that endpoint, in that order."""
    ids = [f"{prefix}{n}" for n in range(len(numbers))]
    world.run(
        "INSERT INTO vpay.events (id, merchant_id, type, object_id, livemode, body, fanout_state,"
        " list_seq) SELECT 'evt_' || id, 'm' || number, 'payment_intent.succeeded', 'o', false,"
        " convert_to(%s, 'UTF8'), 'done', nextval('vpay.event_list_seq')"
        " FROM unnest(%s::text[], %s::integer[]) AS given (id, number)",
        BODY,
        ids,
        numbers,
    )
    world.run(
        "INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id)"
        " SELECT 'del_' || id, 'evt_' || id, 'm' || number, 'e'"
        " FROM unnest(%s::text[], %s::integer[]) AS given (id, number)",
        ids,
        numbers,
    )
    world.run(
        "INSERT INTO vpay.jobs (queue, kind, dedupe_key, lane, due, payload)"
        " SELECT 'webhooks', 'deliver_webhook', 'webhook:del_' || id, 'm' || number || '/e', true,"
        " jsonb_build_object('delivery_id', 'del_' || id)"
        " FROM unnest(%s::text[], %s::integer[]) AS given (id, number)",
        ids,
        numbers,
    )


def rate(world: World, count: int) -> float:
    """First attempts a second, once `count` different events have been seen."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        first: dict[str, int] = {}
        for at, _, event in world.seen():
            first.setdefault(event, at)
        if len(first) >= count:
            return (count - 1) / ((max(first.values()) - min(first.values())) / 1e9)
        if time.monotonic() > give_up:
            raise SystemExit(f"{len(first)} of {count} arrived; see {world.folder}")
        time.sleep(0.1)


def ours(world: World, numbers: list[int]) -> float:
    world.receive()
    queue_up(world, "rate", numbers)
    world.run("ANALYZE vpay.jobs, vpay.webhook_deliveries, vpay.events")
    world.work("webhooks")
    found = rate(world, len(numbers))
    world.stop()
    world.run("DELETE FROM vpay.jobs WHERE queue = 'webhooks'")
    return found


def bare(world: World, numbers: list[int]) -> float:
    """The same by an actor of Dramatiq's own, which keeps nothing of it."""
    world.receive()
    urls = [world.url(ENDPOINTS[number], number) for number in numbers]
    (world.folder / "urls").write_text("\n".join(urls))
    fill = (
        "import sys, peer_dramatiq_post as p\n"
        f"for n, url in enumerate(open({str(world.folder / 'urls')!r}).read().split()):\n"
        f"    p.deliver.send(url, f'evt_bare{{n}}', {BODY!r})\n"
    )
    world.start("fill", "-c", fill)
    world._processes.pop().wait()
    world.start("bare", "-m", "dramatiq", "peer_dramatiq_post", *THREADS)
    found = rate(world, len(numbers))
    world.stop(kill=True)
    return found


def healthy_ms(world: World, prefix: str, rounds: int) -> list[float]:
    """Milliseconds from the commit of an event to its POST, of the healthy endpoints."""
    healthy = [n for n, kind in enumerate(ENDPOINTS) if kind == "ok"]
    committed = {}
    for n in range(rounds):
        id_ = f"evt_{prefix}{n}"
        with world.database.transaction() as tx:
            events.append(
                tx,
                event_id=id_,
                merchant_id=f"m{healthy[n % len(healthy)]}",
                type="payment_intent.succeeded",
                object_id="pi_bench",
                customer_id=None,
                livemode=False,
                body=BODY.encode(),
            )
        committed[id_] = time.monotonic_ns()
        time.sleep(0.03 + 0.04 * (n % 7) / 7)
    give_up = time.monotonic() + PATIENCE_S
    while True:
        came = {event: at for at, _, event in world.seen() if event in committed}
        if len(came) == rounds:
            return [(came[id_] - at) / 1e6 for id_, at in committed.items()]
        if time.monotonic() > give_up:
            raise SystemExit(f"{len(came)} of {rounds} arrived; see {world.folder}")
        time.sleep(0.1)


def neighbours(world: World, rounds: int, backlog: int) -> dict[str, dict[str, float]]:
    """With nobody else, and beside an endpoint that hangs with `backlog` deliveries queued."""
    world.receive()
    world.work()
    healthy_ms(world, "warm", 20)
    alone = healthy_ms(world, "alone", rounds)
    queue_up(world, "hang", [len(ENDPOINTS)] * backlog)
    wait_until(lambda: any("/hang/" in path for _, path, _ in world.seen()), "the neighbour")
    beside = healthy_ms(world, "beside", rounds)
    world.stop()
    return {"alone": _percentiles(alone), "beside_a_hanging_endpoint": _percentiles(beside)}


def _percentiles(values: list[float]) -> dict[str, float]:
    cut = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cut[49], 1), "p99": round(cut[98], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full rounds")
    scale = parser.parse_args().scale
    numbers = [n % len(ENDPOINTS) for n in range(max(600, int(6_000 * scale)))]
    random.Random(1).shuffle(numbers)
    with world() as made:
        peer = bare(made, numbers)
        own = ours(made, numbers)
        waits = neighbours(made, max(50, int(400 * scale)), max(5_000, int(100_000 * scale)))
    result = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "deliveries_per_s": {"ours": round(own), "bare_dramatiq": round(peer)},
        "of_bare_dramatiq": round(own / peer, 2),
        "event_to_post_of_healthy_ms": waits,
    }
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "deliveries.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
