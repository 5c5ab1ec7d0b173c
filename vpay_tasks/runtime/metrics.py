"""Prometheus metrics of the whole system, served by `vpay-dispatch`.

Gauges are read from Postgres when somebody scrapes, at most every few seconds. Workers
have no port: their counters travel in their rows and are added up here, as differences,
so that a worker that restarts or vanishes never makes a sum go down.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from vpay_tasks.errors import Configuration, Internal, Severity, VpayError, describe
from vpay_tasks.store import gauges, vitals
from vpay_tasks.store.db import Database
from vpay_tasks.store.gauges import Gauges, WorkerStats
from vpay_tasks.store.vitals import Vitals
from vpay_tasks.telemetry import COUNTERS, counts, say

READ_EVERY_S: Final = 3.0
"""Between two readings of Postgres, however many scrape. Lower: scrapers cost statements;
higher: a scrape shows the past."""

WAIT_S: Final = 2.0
"""How long a scrape waits for a reading. Prometheus gives up after 10 s by default, and a
scrape that fails tells less than one that says `vpay_up 0`."""

LOST_S: Final = 900.0
"""For how long a worker that died counts as lost just now. Lower: an alert on it may be
missed between two evaluations; higher: it stays red long after the supervisor mended it."""

HOLDER_S: Final = 60.0
"""Age from which a holder of the xmin horizon is named. Lower: each short transaction makes
a series of its own; higher: an alert comes without the name."""

HOLDERS_MAX: Final = 5


class Metrics(Collector):
    """`start` serves it over HTTP; `collect` is what one scrape sees."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._reading: threading.Event | None = None
        self._read_at = float("-inf")
        self._up = False
        self._seen: tuple[Gauges, Vitals] | None = None
        self._sums = WorkerSums()
        self._server: _Server | None = None

    def start(self, port: int) -> int:
        """Serve on every address; port 0 takes a free one. Returns the port.

        The page holds counts and names, no secret; still, keep it off the open internet.
        Raises Configuration for a port that can't be had.
        """
        if self._server is not None:
            raise Internal("metrics were started twice")
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(self)
        try:
            self._server = _Server(port, registry)
        except OSError as error:
            raise Configuration(
                f"dispatch.metrics_port: {port} can't be had ({error.strerror}): name another,"
                " or 0 for a free one"
            ) from None
        return self._server.port

    def stop(self) -> None:
        """Close the port. Does nothing if it is not open."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not ask Postgres."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every metric; never raises for a database that does not answer."""
        self._refresh()
        with self._lock:
            up, seen, sums = self._up, self._seen, dict(self._sums.total)
            age = time.monotonic() - self._read_at
        yield _gauge("vpay_up", "1 if Postgres answered the last reading.", float(up))
        if seen is not None:
            yield _gauge("vpay_gauges_age_seconds", "Since these gauges were read.", age)
            yield from _job_gauges(seen[0])
            yield from _worker_gauges(seen[0].workers)
            yield from _vital_gauges(seen[1])
        yield from _counters(sums, counts())

    def _refresh(self) -> None:
        """Have a fresh reading, or wait a little for one. Concurrent scrapes share it."""
        with self._lock:
            if self._reading is None:
                if self._up and time.monotonic() - self._read_at < READ_EVERY_S:
                    return
                self._reading = threading.Event()
                threading.Thread(
                    target=self._read, args=(self._reading,), name="vpay-metrics", daemon=True
                ).start()
            reading = self._reading
        if not reading.wait(WAIT_S):
            with self._lock:
                self._up = False

    def _read(self, done: threading.Event) -> None:
        seen: tuple[Gauges, Vitals] | None = None
        try:
            with self._database.connection() as connection:
                seen = gauges.look(connection, parked=0), vitals.look(connection)
        except VpayError as error:
            say(Severity.WARN, "gauges could not be read", action="gauges", error=describe(error))
        finally:
            # Whatever happened, the next scrape must be able to try again.
            with self._lock:
                self._reading = None
                self._up = seen is not None
                if seen is not None:
                    self._seen = seen
                    self._sums.add(seen[0].workers)
                    self._read_at = time.monotonic()
            done.set()


class WorkerSums:
    """Sums of the workers' counters since the first reading, which counts as nothing: after
    a restart of this process the sums begin at 0, as a Prometheus counter does."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self._last: dict[str, dict[str, int]] | None = None

    def add(self, workers: Iterable[WorkerStats]) -> None:
        now = {worker.id: worker.counters for worker in workers}
        if self._last is not None:
            for worker_id, counters in now.items():
                before = self._last.get(worker_id, {})
                for name, value in counters.items():
                    last = before.get(name, 0)
                    # Below the last value it began anew, and all of it is new.
                    self.total[name] += value - last if value >= last else value
        self._last = now


class _Server:
    """prometheus_client's HTTP server and its thread."""

    def __init__(self, port: int, registry: CollectorRegistry) -> None:
        self._server, self._thread = start_http_server(port, registry=registry)
        self.port = int(self._server.server_port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _job_gauges(seen: Gauges) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(
        "vpay_jobs",
        f"Jobs by state. A lower bound from {gauges.CAP} on: see vpay_jobs_capped.",
        labels=("queue", "kind", "state"),
    )
    losses = GaugeMetricFamily(
        "vpay_broker_losses",
        "Claims of the jobs that are here whose message never led to a start.",
        labels=("queue", "kind"),
    )
    capped = GaugeMetricFamily(
        "vpay_jobs_capped",
        "1 if vpay_jobs counted only part of this queue and state.",
        labels=("queue", "state"),
    )
    parked = GaugeMetricFamily(
        "vpay_parked_jobs", "Dead letters by reason.", labels=("queue", "kind", "reason")
    )
    by_state: Counter[tuple[str, str, str]] = Counter()
    by_kind: Counter[tuple[str, str]] = Counter()
    full: dict[tuple[str, str], bool] = {}
    for count in seen.counts:
        by_state[count.queue, count.kind, count.state] += count.jobs
        by_kind[count.queue, count.kind] += count.broker_losses
        full[count.queue, count.state] = full.get((count.queue, count.state)) or count.capped
        if count.reason is not None:
            parked.add_metric((count.queue, count.kind, count.reason), count.jobs)
    for queue, kind in by_kind:
        losses.add_metric((queue, kind), by_kind[queue, kind])
        # Every state of a kind that is here: an alert on a state needs its 0 too.
        for state in gauges.STATES:
            jobs.add_metric((queue, kind, state), by_state[queue, kind, state])
    for (queue, state), is_full in full.items():
        capped.add_metric((queue, state), float(is_full))
    ages = GaugeMetricFamily(
        "vpay_queue_age_seconds",
        "Age of the oldest ready job; absent while none is ready.",
        labels=("queue",),
    )
    for queue, age in seen.ages.items():
        ages.add_metric((queue,), age)
    yield from (jobs, capped, losses, parked, ages)
    if seen.jobs_estimate is not None:
        yield _gauge(
            "vpay_jobs_estimate",
            "Rows of the jobs table as of its last vacuum or analyze.",
            seen.jobs_estimate,
        )


def _worker_gauges(workers: Iterable[WorkerStats]) -> Iterator[Metric]:
    states = {"alive": 0, "draining": 0, "dead": 0}
    threads: Counter[str] = Counter()
    lost = 0
    for worker in workers:
        if not worker.alive:
            states["dead"] += 1
            lost += worker.lost and worker.pulse_age < LOST_S
            continue
        states["draining" if worker.draining else "alive"] += 1
        threads.update(dict.fromkeys(worker.queues, 0 if worker.draining else worker.threads))
    by_state = GaugeMetricFamily(
        "vpay_workers", "Worker processes; the dead are forgotten after a day.", labels=("state",)
    )
    for state, number in states.items():
        by_state.add_metric((state,), number)
    by_queue = GaugeMetricFamily(
        "vpay_worker_threads", "Threads of live workers that serve a queue.", labels=("queue",)
    )
    for queue, number in threads.items():
        by_queue.add_metric((queue,), number)
    yield from (by_state, by_queue)
    yield _gauge(
        "vpay_workers_lost",
        "Worker processes that ended without a goodbye in the last 15 minutes: killed, crashed,"
        " or by themselves because a thread was dead or stuck.",
        lost,
    )


def _vital_gauges(seen: Vitals) -> Iterator[Metric]:
    yield _gauge(
        "vpay_dispatchers", "Dispatchers that asked for work lately.", seen.live_dispatchers
    )
    overdue = GaugeMetricFamily(
        "vpay_leases_overdue",
        "Leases that ended over 15 s ago and that no reaper has freed.",
        labels=("queue",),
    )
    for queue, number in seen.overdue.items():
        overdue.add_metric((queue,), number)
    charges = GaugeMetricFamily(
        "vpay_charges",
        f"Charges whose end is in doubt; counted up to {vitals.CAP}.",
        labels=("state",),
    )
    charges.add_metric(("unresolved",), seen.unresolved)
    charges.add_metric(("contradicted",), seen.contradicted)
    yield from (overdue, charges, *_horizon(seen), *_inbox(seen))
    yield _gauge(
        "vpay_jobs_dead_rows", "Dead rows of the jobs table, as the server counts.", seen.dead_rows
    )
    if seen.vacuum_age is not None:
        yield _gauge(
            "vpay_jobs_vacuum_age_seconds", "Since the jobs table's last vacuum.", seen.vacuum_age
        )


def _inbox(seen: Vitals) -> Iterator[Metric]:
    events = GaugeMetricFamily(
        "vpay_inbox_events",
        f"Vendors' events that wait for their grant, or were given up; counted up to {vitals.CAP}.",
        labels=("state",),
    )
    events.add_metric(("open",), seen.inbox.open)
    events.add_metric(("dead",), seen.inbox.dead)
    yield events
    yield _gauge(
        "vpay_inbox_oldest_seconds",
        "Since the receipt of the oldest event that is neither granted nor given up.",
        seen.inbox.age or 0.0,
    )


def _horizon(seen: Vitals) -> Iterator[Metric]:
    yield _gauge(
        "vpay_xmin_age_seconds",
        "Age of the oldest transaction that keeps dead rows from being removed.",
        seen.oldest(),
    )
    yield _gauge(
        "vpay_xmin_age_transactions",
        "The same in transactions; replication slots have no other age.",
        max((one.transactions for one in seen.horizon), default=0),
    )
    named = GaugeMetricFamily(
        "vpay_xmin_holder_age_seconds",
        f"The same for each holder older than {HOLDER_S:.0f} s, the {HOLDERS_MAX} oldest.",
        labels=("holder", "pid", "name", "state"),
    )
    old = [(one.seconds, one) for one in seen.horizon if (one.seconds or 0.0) > HOLDER_S]
    old.sort(key=lambda pair: -(pair[0] or 0.0))
    for seconds, one in old[:HOLDERS_MAX]:
        pid = "" if one.pid is None else str(one.pid)
        named.add_metric((one.holder, pid, one.name, one.state or ""), seconds or 0.0)
    yield named


def _counters(workers: dict[str, int], own: dict[str, int]) -> Iterator[Metric]:
    """One family per counter. Every dispatcher exports the sum over all workers, so across
    dispatchers take its maximum; `source="dispatcher"` is this process's own, to be added."""
    for name, text in COUNTERS.items():
        family = CounterMetricFamily(f"vpay_{name}", text, labels=("source",))
        family.add_metric(("workers",), workers.get(name, 0))
        family.add_metric(("dispatcher",), own.get(name, 0))
        yield family
