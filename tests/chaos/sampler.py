"""Looks at the database four times a second: what is late, and what was counted."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import replace
from typing import Any, Final

import psycopg

from tests.chaos.town import Town
from tests.invariants import Bounds, Overdue, overdue
from vpay_sandbox.journal import Journal

EVERY_S: Final = 0.25
LAG_FACTOR: Final = 10.0
"""A process that is late by so much in one wait is late by more in a chain of them."""
SERVED: Final = """
SELECT DISTINCT unnest(queues)
FROM vpay.workers
WHERE NOT draining AND seen_at > now() - interval '2 seconds'
"""
STATS: Final = "SELECT id, stats -> 'counters' FROM vpay.workers WHERE stats ? 'counters'"


class Sampler:
    """`worst` is the longest that any job was late, `at_worst` which one; `stuck` the same, but
    counted only while somebody was there to serve its queue. Counters are kept by
    worker, beyond its row's end: what a killed one had counted since its last pulse is lost."""

    def __init__(self, town: Town) -> None:
        self.worst = self.stuck = 0.0
        self.at_worst = self.at_stuck = ""
        self._late: list[Overdue] = []
        self._looks = 0
        self._seen: dict[int, float] = {}
        self._served: dict[str, float] = {}
        """Since when each queue has had a live worker."""
        self._town = town
        self._counters: dict[str, dict[str, int]] = defaultdict(dict)
        self._lag = 0.0
        self._journal = Journal(town.folder / "stuck.jsonl")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._journal.close()

    @property
    def late(self) -> list[Overdue]:
        """At the last look. Nobody is later than we have seen him wait: what lay behind a
        closed circuit was late on purpose."""
        assert self._thread.is_alive(), "the sampler has died: nobody saw who is late"
        return self._late

    @property
    def looks(self) -> int:
        """How often it has looked, and was answered."""
        return self._looks

    def total(self, counter: str) -> int:
        """Over every worker that ever was."""
        return sum(counts.get(counter, 0) for counts in list(self._counters.values()))

    def bounds(self) -> Bounds:
        """Of I7, with this machine's own lateness since the last `fresh`."""
        return Bounds(lag=self._lag * LAG_FACTOR)

    def fresh(self) -> None:
        """Forget how late this machine was: a new calm begins."""
        self._lag = 0.0

    def _loop(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while True:
            asked = time.monotonic()
            if self._stopping.wait(EVERY_S):
                break
            try:
                if connection is None or connection.closed:
                    connection = self._town.database("soak sampler")
                self._look(connection)
            except psycopg.Error:
                if connection is not None:
                    connection.close()  # the server is being tormented
                self._served.clear()
                continue
            self._lag = max(self._lag, time.monotonic() - asked - EVERY_S)
        if connection is not None:
            connection.close()

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        now, found = time.monotonic(), overdue(connection)
        self._seen = {one.job_id: self._seen.get(one.job_id, now - EVERY_S) for one in found}
        late = [
            replace(one, seconds=min(one.seconds, now - self._seen[one.job_id])) for one in found
        ]
        self._late = sorted(late, key=lambda one: -one.seconds)
        self._looks += 1
        served = {row[0] for row in connection.execute(SERVED.encode()).fetchall()}
        self._served = {queue: self._served.get(queue, now) for queue in served}
        for one in self._late:
            about = f"{one.kind} {one.job_id}, {one.what}"
            if one.seconds > self.worst:
                self.worst, self.at_worst = one.seconds, about
            while_served = min(one.seconds, now - self._served.get(one.queue, now))
            if while_served > self.stuck:
                self.stuck, self.at_stuck = while_served, about
                self._journal.write("stuck", seconds=while_served, what=about, queue=one.queue)
        for worker, counters in connection.execute(STATS.encode()).fetchall():
            mine = self._counters[worker]
            for name, value in counters.items():
                mine[name] = max(mine.get(name, 0), int(value))
