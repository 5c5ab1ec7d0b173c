"""The loop's pauses, and queues that don't wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories import a_job, a_worker, row
from vpay_tasks.config import DispatchTable, Settings
from vpay_tasks.core.task import Registry
from vpay_tasks.runtime.broker import make
from vpay_tasks.runtime.dispatcher import FULL_S, IDLE_S, NOBODY_S, Dispatcher
from vpay_tasks.store import claims
from vpay_tasks.store.db import Database, connect


@pytest.fixture
def dispatcher(settings: Settings) -> Iterator[Dispatcher]:
    settings = settings.model_copy(update={"dispatch": DispatchTable(queues=("first", "second"))})
    broker = make(settings.broker.url.get_secret_value())
    dispatcher = Dispatcher(settings, Registry(), broker)
    yield dispatcher
    dispatcher.close()
    broker.close()


def due(database: Database, queue: str) -> claims.Due:
    with database.connection() as connection:
        (found,) = claims.due_queues(connection, [queue])
    return found


def test_one_queues_trouble_leaves_the_others_their_turn(
    dispatcher: Dispatcher, database: Database, dsn: str
) -> None:
    for queue in ("first", "second"):
        a_worker(database, queues=(queue,))
    blocked, free = a_job(database, queue="first"), a_job(database, queue="second")
    with connect(dsn, application="holder") as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT pg_advisory_xact_lock(88, hashtext('first'))")
        dispatcher.look()
        holder.execute("ROLLBACK")
    assert (row(database, blocked) or {})["lease"] is None
    assert (row(database, free) or {})["lease"] is not None


def test_without_a_worker_a_queue_is_looked_at_rarely(
    dispatcher: Dispatcher, database: Database
) -> None:
    a_job(database, queue="first")
    assert dispatcher.tick(due(database, "first")) == NOBODY_S


def test_without_room_the_pause_doubles_up_to_the_idle_one(
    dispatcher: Dispatcher, database: Database
) -> None:
    a_worker(database, threads=1, queues=("first",))
    for _ in range(9):
        a_job(database, queue="first")
    pauses = [dispatcher.tick(due(database, "first")) for _ in range(7)]
    assert pauses == [0.0, FULL_S, 2 * FULL_S, 4 * FULL_S, 8 * FULL_S, IDLE_S, IDLE_S]


def test_a_walk_that_was_cut_goes_on_soon_where_it_stopped(
    dispatcher: Dispatcher, database: Database
) -> None:
    a_worker(database, queues=("first",))
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, lane, due, payload)"
            " SELECT 'first', 'k', 'lane ' || to_char(n, '0000'), true, '{}'"
            " FROM generate_series(1, 450) AS n"
        )
        connection.execute(
            "INSERT INTO vpay.lanes (queue, lane, paused)"
            " SELECT queue, lane, true FROM vpay.jobs WHERE lane < 'lane  0450'"
        )
    pauses = [dispatcher.tick(due(database, "first")) for _ in range(3)]
    assert pauses == [FULL_S, FULL_S, 0.0], "the free lane is the last of 450"
