"""Waiting for payments to settle, with something to look at meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psycopg
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

# In numbers, what the database says about every payment and what follows from it.
COUNTS = """
SELECT (SELECT count(*) FROM vpay.charges),
       (SELECT count(*) FROM vpay.charges WHERE state IN ('succeeded', 'failed')),
       (SELECT count(*) FROM vpay.events),
       (SELECT count(*) FROM vpay.events WHERE fanout_state = 'pending'),
       (SELECT count(*) FROM vpay.webhook_deliveries WHERE state = 'delivered'),
       (SELECT count(*) FROM vpay.webhook_deliveries WHERE state = 'pending')
"""
# Between two looks. Shorter takes a core from the workers, longer shows in the total.
LOOK_EVERY_S = 0.15
# Without a terminal: a line at most so often.
LINE_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Counts:
    confirmed: int
    settled: int
    events: int
    unfanned: int
    delivered: int
    undelivered: int

    @property
    def quiet(self) -> bool:
        """Nothing that is there is still on its way."""
        return not (self.confirmed - self.settled or self.unfanned or self.undelivered)


class Watch:
    """One live line on a terminal, a few plain lines elsewhere; all of it on `console`."""

    def __init__(self, console: Console, payments: int, deliveries: int) -> None:
        self._console, self._payments, self._wanted = console, payments, deliveries
        self._line_at = 0.0
        self._last = ""
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task("", total=self._payments + self._wanted)
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def until_quiet(
        self, database_url: str, producing: Callable[[], bool], *, timeout_s: float
    ) -> bool:
        """True when everything has ended; False after `timeout_s`. `producing` may raise."""
        deadline = time.monotonic() + timeout_s
        with psycopg.connect(database_url, autocommit=True) as connection:
            while True:
                busy = producing()
                counts = _look(connection)
                done = counts.quiet and not busy
                self._show(counts, last=done)
                if done or time.monotonic() > deadline:
                    return done
                time.sleep(LOOK_EVERY_S)

    def _show(self, counts: Counts, *, last: bool) -> None:
        text = (
            f"{counts.confirmed}/{self._payments} confirmed, {counts.settled} settled,"
            f" {counts.delivered}/{self._wanted} webhooks delivered"
        )
        if self._progress is not None:
            done = counts.settled + counts.delivered
            self._progress.update(self._task, description=text, completed=done)
        elif text != self._last and (last or time.monotonic() - self._line_at >= LINE_EVERY_S):
            self._line_at, self._last = time.monotonic(), text
            self._console.print(f"  {text}", highlight=False)


def _look(connection: psycopg.Connection) -> Counts:
    row = connection.execute(COUNTS).fetchone()
    assert row is not None
    return Counts(*row)
