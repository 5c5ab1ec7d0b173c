"""Fixtures of the fault tests: a fleet, and the tables that steer its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fleet import Fleet
from vpay_tasks.core.task import Kind
from vpay_tasks.store import jobs
from vpay_tasks.store.db import Database

STEERING = """
CREATE TABLE public.gates (name text PRIMARY KEY);
CREATE TABLE public.runs (
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id bigint NOT NULL,
    what text NOT NULL,
    pid integer NOT NULL,
    attempt integer NOT NULL
);
"""


@pytest.fixture
def fleet(tmp_path: Path, dsn: str, broker_url: str, database: Database) -> Iterator[Fleet]:
    with database.connection() as connection:
        connection.execute(STEERING)
    fleet = Fleet(tmp_path, dsn, broker_url)
    yield fleet
    fleet.end()


class Board:
    """What a test asks of its database, in a word each."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def ask(self, query: str, **params: Any) -> list[tuple[Any, ...]]:
        with self.database.connection() as connection:
            return connection.execute(query.encode(), params).fetchall()

    def enqueue(self, kind: str, payload: dict[str, Any], **options: Any) -> int:
        """A job of a steered task, in a transaction of its own."""
        shape = Kind(kind, **{k: options.pop(k) for k in ("queue", "batch") if k in options})
        with self.database.transaction() as tx:
            id_ = jobs.enqueue(tx, shape, payload, **options).id
        assert id_ is not None
        return id_

    def open(self, gate: str) -> None:
        with self.database.connection() as connection:
            connection.execute("INSERT INTO public.gates VALUES (%s)", (gate,))

    def runs(self, what: str) -> list[int]:
        """The jobs that noted `what`, oldest first, one entry per note."""
        rows = self.ask(
            "SELECT job_id FROM public.runs WHERE what = %(what)s ORDER BY at", what=what
        )
        return [row[0] for row in rows]

    def left(self) -> list[tuple[Any, ...]]:
        """Rows of user tasks that still stand."""
        return self.ask(
            "SELECT id, kind, lease IS NOT NULL, started_at IS NOT NULL, failures, crashes,"
            " dead_reason, last_error FROM vpay.jobs WHERE queue = 'default' ORDER BY id"
        )

    def empty(self) -> bool:
        """Whether every row of user tasks is gone; says which are left."""
        assert self.left() == []
        return True


@pytest.fixture
def board(database: Database) -> Board:
    return Board(database)


Waiter = Callable[..., Any]
