"""Group starts: one statement for all that wait, each row for one message."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import Eventually
from tests.factories import a_job, a_worker, claimed
from vpay_tasks.errors import Storage
from vpay_tasks.runtime.start import Starter, Waiting
from vpay_tasks.store import jobs
from vpay_tasks.store.db import Database
from vpay_tasks.store.jobs import StartedJob
from vpay_tasks.store.leases import Lease


class Gate:
    """The statement on a real Postgres, which a test can hold back, and the groups it got."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.open = threading.Event()
        self.open.set()
        self.groups: list[list[Lease]] = []
        self.fails = False

    def swap(self, claims: Sequence[Lease], token: uuid.UUID) -> list[StartedJob | None]:
        self.groups.append(list(claims))
        assert self.open.wait(20)
        if self.fails:
            raise Storage("Postgres is away")
        with self._database.connection() as connection:
            return jobs.start(
                connection, claims, run=token, worker="w_test", run_lease=30, known=[]
            )


@pytest.fixture
def gate(database: Database) -> Gate:
    return Gate(database)


def messages(database: Database, count: int) -> list[dict[int, uuid.UUID]]:
    a_worker(database, threads=16)
    for _ in range(count):
        a_job(database)
    with database.connection() as connection:
        found = claimed(connection).messages
    return [dict.fromkeys(message.ids, message.lease) for message in found]


def test_what_comes_while_a_start_is_on_its_way_goes_together(
    database: Database, gate: Gate, eventually: Eventually
) -> None:
    first, *others = messages(database, 9)
    starter = Starter(gate.swap)
    gate.open.clear()
    with ThreadPoolExecutor(9) as pool:
        futures = [pool.submit(starter.start, first)]
        eventually(lambda: gate.groups)
        futures += [pool.submit(starter.start, other) for other in others]
        eventually(lambda: len(starter._waiting) == 8)
        gate.open.set()
        done = [future.result() for future in futures]
    assert [len(group) for group in gate.groups] == [1, 8]
    assert [[job.id for job in one.started] for one in done] == [
        list(claims) for claims in (first, *others)
    ]


def test_of_two_copies_that_wait_together_one_gets_the_row(
    database: Database, gate: Gate, eventually: Eventually
) -> None:
    first, copied = messages(database, 2)
    starter = Starter(gate.swap)
    gate.open.clear()
    with ThreadPoolExecutor(3) as pool:
        leading = pool.submit(starter.start, first)
        eventually(lambda: gate.groups)
        copies = [pool.submit(starter.start, copied) for _ in range(2)]
        eventually(lambda: len(starter._waiting) == 2)
        gate.open.set()
        leading.result()
        done = [copy.result() for copy in copies]
    assert sorted(len(one.started) for one in done) == [0, 1]


def test_a_group_that_fails_tells_every_message_and_the_next_one_goes_on(
    database: Database, gate: Gate
) -> None:
    first, second = messages(database, 2)
    starter = Starter(gate.swap)
    gate.fails = True
    failed = starter.start(first)
    assert isinstance(failed.error, Storage)
    gate.fails = False
    assert [job.id for job in starter.start(second).started] == list(second)


def test_every_message_of_a_group_hears_that_its_start_failed(
    database: Database, gate: Gate, eventually: Eventually
) -> None:
    """A lost answer above all: who isn't told would not overrule it."""
    first, *others = messages(database, 4)
    starter = Starter(gate.swap)
    gate.open.clear()
    gate.fails = True
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(starter.start, first)]
        eventually(lambda: gate.groups)
        futures += [pool.submit(starter.start, other) for other in others]
        eventually(lambda: len(starter._waiting) == 3)
        gate.open.set()
        done = [future.result() for future in futures]
    assert [type(one.error) for one in done] == [Storage] * 4


def test_many_threads_start_everything_once(database: Database, gate: Gate) -> None:
    starter = Starter(gate.swap)
    found = messages(database, 20) * 3  # each message three times
    with ThreadPoolExecutor(16) as pool:
        done: list[Waiting] = list(pool.map(starter.start, found))
    ids = [job.id for one in done for job in one.started]
    assert sorted(ids) == sorted({id_ for claims in found for id_ in claims})
