"""Drains beside each other, and beside somebody who holds an event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import Eventually
from tests.webhooks.world import MERCHANT, append_many, endpoint, rows, settings
from vpay_tasks.errors import Internal
from vpay_tasks.store.db import Connection, Database
from vpay_tasks.store.events import PendingEvent
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints
from vpay_tasks.webhooks.fanout import Pass, drain

ENDPOINTS = Endpoints(settings(endpoint()))
WAIT_S = 20.0


class Halting(Database):
    """Stops right before each COMMIT until it may go on."""

    def __init__(self, url: str) -> None:
        super().__init__(url, application="tests")
        self.halted = threading.Event()
        self.may_go_on = threading.Event()

    @contextmanager
    def transaction(self, **how: float) -> Iterator[Connection]:
        with super().transaction(**how) as tx:
            yield tx
            self.halted.set()
            self.may_go_on.wait(WAIT_S)


class Impatient(Database):
    """Waits 50 ms for a lock instead of 15 s."""

    @contextmanager
    def transaction(self, **how: float) -> Iterator[Connection]:
        with super().transaction(**how) as tx:
            tx.execute("SET LOCAL lock_timeout = '50ms'")
            yield tx


def pending(event_id: str) -> PendingEvent:
    return PendingEvent(event_id, MERCHANT, "payment_intent.succeeded")


def by_page(db: Database, _event_id: str) -> None:
    drain(db, ENDPOINTS)


def by_event(db: Database, event_id: str) -> None:
    fanout._one_by_one(db, ENDPOINTS, [pending(event_id)])


def by_giving_up(db: Database, event_id: str) -> None:
    fanout._count(db, pending(event_id), Internal("for the fifth time"))


@pytest.mark.parametrize("way", [by_page, by_event, by_giving_up])
def test_whoever_lists_an_event_commits_before_the_next_one_takes_a_number(
    database: Database, dsn: str, eventually: Eventually, way: Callable[[Database, str], None]
) -> None:
    (first,) = append_many(database, 1)
    rows(database, "UPDATE vpay.events SET fanout_attempts = 4")
    halting = Halting(dsn)
    passes: list[Pass] = []
    one = threading.Thread(target=way, args=(halting, first))
    other = threading.Thread(target=lambda: passes.append(drain(database, ENDPOINTS)))

    def waits() -> bool:
        query = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        return bool(rows(database, query))

    one.start()
    assert halting.halted.wait(WAIT_S)
    (second,) = append_many(database, 1)
    other.start()
    eventually(lambda: waits() or passes)
    overtaken = list(passes)
    halting.may_go_on.set()
    one.join()
    other.join()
    halting.close()
    assert overtaken == []
    listed = rows(database, "SELECT id FROM vpay.events ORDER BY list_seq")
    assert listed == [(first,), (second,)]


def test_an_event_that_somebody_holds_is_passed_over_event_by_event_too(
    database: Database, dsn: str
) -> None:
    held, free = append_many(database, 2)
    impatient = Impatient(dsn, application="tests")
    with database.transaction() as tx:
        tx.execute("SELECT 1 FROM vpay.events WHERE id = %s FOR UPDATE", (held,))
        page = [pending(held), pending(free)]
        assert fanout._one_by_one(impatient, ENDPOINTS, page) == Pass(2, 1, 0, 1)
        assert not fanout._count(impatient, pending(held), Internal("counted by nobody"))
    impatient.close()
    found = rows(database, "SELECT id, fanout_state FROM vpay.events ORDER BY id")
    assert found == [(held, "pending"), (free, "done")]
