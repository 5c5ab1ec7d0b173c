"""What this process has seen, for Prometheus."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from vpay_tasks.telemetry import COUNTERS, counts


class Seen:
    """Counts by label, in a registry of their own: an application that mounts our routes has
    one already. All begin at 0: Prometheus sees no increase in a series that appears."""

    def __init__(self, rails: Iterable[str], outcomes: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Own())
        self._callbacks = Counter(
            "vpay_callbacks",
            "Callbacks by rail (unknown: of none in the settings) and by what became of them.",
            ("rail", "outcome"),
            registry=self.registry,
        )
        for rail, outcome in itertools.product(rails, outcomes):
            self._callbacks.labels(rail, outcome)

    def callback(self, rail: str, outcome: str) -> None:
        """Count one. Both are words of ours: a stranger's path must make no series."""
        self._callbacks.labels(rail, outcome).inc()

    def page(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)


class _Own(Collector):
    """The counters of this process under the names that dispatchers export, with a source of
    their own: alerts add them up."""

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        own = counts()
        for name, text in COUNTERS.items():
            family = CounterMetricFamily(f"vpay_{name}", text, labels=("source",))
            family.add_metric(("web",), own.get(name, 0))
            yield family
