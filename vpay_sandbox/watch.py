"""Waiting for payments to come to rest, with something to look at meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psycopg
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from vpay_sandbox.scenarios import Scenario

# In numbers, what the database says about every payment and what follows from it. At rest is
# what has ended, and what the script leaves to a human: unresolved; a contradiction only once it
# was seen.
COUNTS = """
SELECT (SELECT count(*) FROM vpay.charges),
       (SELECT count(*)
        FROM vpay.charges AS c
        JOIN vpay.payment_intents AS i ON i.id = c.payment_intent_id
        WHERE c.state = 'succeeded'
            OR c.state = 'failed'
                AND (c.contradicted_at IS NOT NULL
                    OR i.metadata->>'scenario' <> ALL(%(contradicted)s))
            OR c.state = 'unresolved' AND i.metadata->>'scenario' = ANY(%(unresolved)s)),
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
    at_rest: int
    events: int
    unfanned: int
    delivered: int
    undelivered: int

    @property
    def quiet(self) -> bool:
        """Nothing that is there is still on its way."""
        return not (self.confirmed - self.at_rest or self.unfanned or self.undelivered)


class Watch:
    """One live line on a terminal, a few plain lines elsewhere; all of it on `console`."""

    def __init__(self, console: Console, scenarios: Sequence[Scenario], deliveries: int) -> None:
        """`scenarios`: one per payment; `deliveries`: how many will be made."""
        self._console, self._payments, self._wanted = console, len(scenarios), deliveries
        self._names = {
            "unresolved": [one.name for one in scenarios if one.expect.state == "unresolved"],
            "contradicted": [one.name for one in scenarios if one.expect.contradicted],
        }
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
                counts = self._look(connection)
                done = counts.quiet and not busy
                self._show(counts, last=done)
                if done or time.monotonic() > deadline:
                    return done
                time.sleep(LOOK_EVERY_S)

    def _show(self, counts: Counts, *, last: bool) -> None:
        text = (
            f"{counts.confirmed}/{self._payments} confirmed, {counts.at_rest} at rest,"
            f" {counts.delivered}/{self._wanted} webhooks delivered"
        )
        if self._progress is not None:
            done = counts.at_rest + counts.delivered
            self._progress.update(self._task, description=text, completed=done)
        elif text != self._last and (last or time.monotonic() - self._line_at >= LINE_EVERY_S):
            self._line_at, self._last = time.monotonic(), text
            self._console.print(f"  {text}", highlight=False)

    def _look(self, connection: psycopg.Connection) -> Counts:
        row = connection.execute(COUNTS, self._names).fetchone()
        assert row is not None
        return Counts(*row)
