"""The same no-op drained by the peers, on the same servers in the same run.

Everything waits in the queue before a worker starts; the clock runs from the first look that
finds it shrinking to the one that finds it empty. Each peer runs as its documentation says,
with as many processes as ours.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from subprocess import Popen

import psycopg
import redis

from vpay_sandbox.process import spawn

HERE = Path(__file__).resolve().parent
PATIENCE_S = 120.0
LOOK_S = 0.01


class Peers:
    """`dsn`: an empty database of Postgres; `broker`: a Valkey without a database number."""

    def __init__(self, folder: Path, dsn: str, broker: str) -> None:
        self._folder = folder
        self._dsn = dsn
        self._broker = broker.rsplit("/", 1)[0]

    def celery(self, count: int) -> float:
        """Tasks/s of two worker processes."""
        url = f"{self._broker}/1"
        fill = f"import peer_celery as p\nfor n in range({count}): p.noop.delay(n)"
        self._run([sys.executable, "-c", fill], url)
        command = ["-m", "celery", "-A", "peer_celery", "worker", "-c", "2", "-l", "error"]
        with redis.Redis.from_url(url) as client:
            return self._drained(count, lambda: client.llen("celery"), [command], url)

    def dramatiq(self, count: int) -> float:
        """Messages/s of two worker processes of eight threads."""
        url = f"{self._broker}/2"
        fill = f"import peer_dramatiq as p\nfor n in range({count}): p.noop.send(n)"
        self._run([sys.executable, "-c", fill], url)
        command = ["-m", "dramatiq", "peer_dramatiq", "-p", "2", "-t", "8"]
        with redis.Redis.from_url(url) as client:
            return self._drained(
                count, lambda: client.hlen("dramatiq:default.msgs"), [command], url
            )

    def pgqueuer(self, count: int, batch: int) -> float:
        """Jobs/s of one process, its documented way, `batch` rows a round."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            row = connection.execute("SELECT to_regclass('pgqueuer') IS NULL").fetchone()
            if row and row[0]:
                self._run([sys.executable, str(HERE / "peer_pgqueuer.py"), "install", "0"], "")
            fill = [sys.executable, str(HERE / "peer_pgqueuer.py"), "fill", str(count)]
            self._run(fill, "")

            def left() -> int:
                found = connection.execute("SELECT count(*) FROM pgqueuer").fetchone()
                return int(found[0]) if found else 0

            work = [str(HERE / "peer_pgqueuer.py"), "work", str(batch)]
            return self._drained(count, left, [work], "")

    def _drained(
        self, count: int, left: Callable[[], int], commands: list[list[str]], broker: str
    ) -> float:
        workers = [self._spawn([sys.executable, *command], broker) for command in commands]
        give_up = time.monotonic() + PATIENCE_S
        begun, first, seen = 0.0, count, count
        try:
            while (seen := left()) > 0:
                if not begun and seen < count:
                    begun, first = time.monotonic(), seen
                if time.monotonic() > give_up:
                    raise SystemExit(f"a peer left {seen} of {count} jobs; see {self._folder}")
                time.sleep(LOOK_S)
            return first / (time.monotonic() - begun)
        finally:
            for worker in workers:
                # They have nothing left to do, and not all of them hear a polite word.
                os.killpg(worker.pid, SIGKILL)
                worker.wait()

    def _spawn(self, command: list[str], broker: str) -> Popen[bytes]:
        log = self._folder / f"peer-{len(list(self._folder.glob('peer-*')))}.log"
        return spawn(command, env=self._env(broker), log=log)

    def _run(self, command: list[str], broker: str) -> None:
        if self._spawn(command, broker).wait(PATIENCE_S) != 0:
            raise SystemExit(f"a peer failed: {' '.join(command)}; see {self._folder}")

    def _env(self, broker: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
            "BENCH_BROKER": broker,
            "BENCH_DSN": self._dsn,
        }
