"""I7: nothing waits for longer than the settings say, while somebody is there to do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

LEASED_S: Final = 5.5
DUE_S: Final = 0.25
"""What the manuals say: a reaper passes every five seconds, and one that has lost its connection
is back in half a second; who finds nobody to work looks again in a quarter of one. Read from the
code that is judged, they would grow with it: a reaper that comes every ten minutes would be late
by nobody's measure."""

MARGIN_S: Final = 20.0
"""For what no setting bounds: a queue that is worked off, a machine with other work. Lower: a
slow machine is taken for a stuck job. Higher: one that is freed too late passes."""

WAITING: Final = """
SELECT j.id, j.queue, j.kind, CASE
        WHEN j.started_at IS NOT NULL THEN 'running'
        WHEN j.lease IS NOT NULL THEN 'claimed'
        ELSE 'due'
    END,
    extract(epoch FROM clock_timestamp() - coalesce(j.lease_until, j.run_at))::float8
FROM vpay.jobs AS j
LEFT JOIN vpay.lanes AS l ON l.queue = j.queue AND l.lane = j.lane
WHERE j.parked_at IS NULL
    AND coalesce(j.lease_until, j.run_at) < clock_timestamp()
    AND (j.lease IS NOT NULL
        OR l.lane IS NULL
        OR NOT (l.paused OR coalesce(l.circuit_until > now(), false) OR l.circuit_trips > 0))
"""
"""Past its lease, or due and free. A lane that is paused, or whose receiver is silent, waits on
purpose: one probe at a time."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A job past its lease (claimed, running) or past its time (due), by so many seconds."""

    job_id: int
    queue: str
    kind: str
    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long is too long, from the end of the last fault on.

    A row past its lease waits for the next pass of a reaper, and for a reaper that lost its
    connection. A row that is due waits for the next claim, and for those before it. `margin` is
    on top of either; `lag`, what this machine itself was late by, is measured by who samples.
    """

    margin: float = MARGIN_S
    lag: float = 0.0

    @property
    def leased(self) -> float:
        return LEASED_S + self.margin + self.lag

    @property
    def due(self) -> float:
        return DUE_S + self.margin + self.lag

    def of(self, what: str) -> float:
        return self.due if what == "due" else self.leased

    def broken_by(self, found: list[Overdue]) -> Iterator[str]:
        """A sentence for each that waits for longer."""
        for one in found:
            if one.seconds > self.of(one.what):
                yield (
                    f"job {one.job_id} ({one.kind}) is {one.what} and {one.seconds:.1f} s late;"
                    f" at most {self.of(one.what):.1f} s"
                )


def overdue(connection: psycopg.Connection[Any]) -> list[Overdue]:
    """What is late now, the latest first."""
    rows = connection.execute(WAITING.encode()).fetchall()
    return sorted((Overdue(*row) for row in rows), key=lambda one: -one.seconds)
