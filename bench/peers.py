"""The same no-op drained by the peers, on the same servers in the same run.

Everything waits in the queue before a worker starts. Each peer runs as its documentation
says, with as many processes (and threads, where it has any) as ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from subprocess import Popen

import psycopg
import redis
from drain import PATIENCE_S, drained
from fleet import PROCESSES, THREADS

from vpay_sandbox.process import spawn

HERE = Path(__file__).resolve().parent


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
        command = ["-m", "celery", "-A", "peer_celery", "worker", "-l", "error"]
        command += ["-c", str(PROCESSES)]
        with redis.Redis.from_url(url) as client:
            return self._drained(count, lambda: client.llen("celery"), [command], url)

    def dramatiq(self, count: int) -> float:
        """Messages/s of two worker processes."""
        url = f"{self._broker}/2"
        fill = f"import peer_dramatiq as p\nfor n in range({count}): p.noop.send(n)"
        self._run([sys.executable, "-c", fill], url)
        command = ["-m", "dramatiq", "peer_dramatiq", "-p", str(PROCESSES), "-t", str(THREADS)]
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
            connection.execute("TRUNCATE pgqueuer, pgqueuer_log")  # no dead rows of the last time
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
        try:
            return drained(f"a peer (see {self._folder})", count, left)
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
