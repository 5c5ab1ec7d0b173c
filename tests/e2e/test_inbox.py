"""Vendors' webhooks with real servers, dispatchers and workers, some of which are killed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from tests.conftest import Eventually
from tests.e2e import proxy
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet, Process
from tests.inbox.signing import TABLES, Delivery, by_stripe, stripe_event
from tests.web.client import Client, Told
from vpay_tasks.store.db import Database


@pytest.fixture
def inbox_fleet(tmp_path: Path, dsn: str, broker_url: str, database: Database) -> Iterator[Fleet]:
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.effects (event_id text NOT NULL)")
    fleet = Fleet(tmp_path, dsn, broker_url)
    fleet.config |= {"inbox": TABLES, "worker": {"modules": ["grants"]}}
    yield fleet
    fleet.end()


def post(client: Client, given: Delivery) -> Told:
    return client.send("/inbox/stripe", given.body, **given.headers)


def granted(board: Board, event_id: str) -> int:
    query = "SELECT count(*) FROM public.effects WHERE event_id = %(id)s"
    return int(board.ask(query, id=event_id)[0][0])


def test_twenty_copies_on_four_servers_are_one_row_one_grant_and_all_2xx(
    inbox_fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    inbox_fleet.dispatcher()
    inbox_fleet.workers(threads=2, queues=["inbox"])
    clients = [inbox_fleet.web()[1] for _ in range(4)]
    for client in clients:
        eventually(client.is_up)
    given, start = by_stripe(stripe_event()), threading.Barrier(20)

    def at_once(number: int) -> int:
        start.wait(20)
        return post(clients[number % 4], given).status

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(at_once, range(20))) == [200] * 20
    assert board.ask("SELECT count(*), max(deliveries) FROM vpay.inbox_events") == [(1, 20)]
    eventually(lambda: board.ask("SELECT state FROM vpay.inbox_events") == [("done",)])
    assert granted(board, "evt_1") == 1
    # A second event of the reference, and one that comes again once it is done.
    told = post(clients[0], by_stripe(stripe_event("evt_2")))
    assert told.status == 200
    eventually(lambda: granted(board, "evt_2") == 1)
    eventually(lambda: post(clients[1], given).body["state"] == "PAID")
    assert granted(board, "evt_1") == 1


class Town:
    """A vendor that sends until it hears a 2xx, and the servers that it sends to."""

    def __init__(self, fleet: Fleet, board: Board, eventually: Eventually) -> None:
        self.fleet = fleet
        self.board = board
        self.eventually = eventually
        self.fleet.config["windows"] = {"inbox_answer": 20}
        self.fleet.config["web"] = {"patience": 20}
        self.given = {n: by_stripe(stripe_event(f"evt_{n}", about=f"pi_{n}")) for n in (1, 2, 3)}

    def server(self, dsn: str = "") -> tuple[Process, Client]:
        """A server, over another way to Postgres, if one is named."""
        before = self.fleet.config["database"]
        if dsn:
            self.fleet.config["database"] = {"url": dsn}
        process, client = self.fleet.web()
        self.fleet.config["database"] = before
        self.eventually(client.is_up)
        return process, client

    def kept(self, number: int) -> int:
        query = "SELECT count(*) FROM vpay.inbox_events WHERE event_id = %(id)s"
        return int(self.board.ask(query, id=f"evt_{number}")[0][0])

    def waits_for(self, condition: str) -> None:
        """Until a backend waits for a lock of that kind."""
        query = f"SELECT 1 FROM pg_locks WHERE NOT granted AND {condition}"
        self.eventually(lambda: self.board.ask(query))

    def sends_again_and_all_is_granted_once(self) -> None:
        self.fleet.dispatcher()
        self.fleet.workers(threads=2, queues=["inbox"])
        _, client = self.server()
        for given in self.given.values():
            assert post(client, given).status == 200
        states = "SELECT state FROM vpay.inbox_events"
        self.eventually(lambda: self.board.ask(states) == [("done",)] * 3, within=40)
        assert [granted(self.board, f"evt_{n}") for n in (1, 2, 3)] == [1] * 3


def kill(process: Process) -> None:
    process.signal(signal.SIGKILL)
    process.wait()


def unheard(future: Future[Told]) -> bool:
    return isinstance(future.exception(), urllib3.exceptions.HTTPError)


@pytest.mark.more(seconds=40)
def test_a_server_killed_before_its_commit_kept_nothing_and_said_nothing(
    inbox_fleet: Fleet, board: Board, database: Database, eventually: Eventually
) -> None:
    town = Town(inbox_fleet, board, eventually)
    with ThreadPoolExecutor(5) as pool:
        # Half of the body has come.
        process, client = town.server()
        with client.socket() as line:
            line.sendall(b"POST /inbox/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
            kill(process)
        assert town.kept(1) == 0
        # Verified, the row on its way, behind a lock.
        process, client = town.server()
        with database.transaction() as tx:
            tx.execute("LOCK TABLE vpay.inbox_events IN SHARE MODE")
            told = pool.submit(post, client, town.given[2])
            town.waits_for("relation = 'vpay.inbox_events'::regclass")
            kill(process)
        assert unheard(told)
        assert town.kept(2) == 0
        # In the middle of its commit.
        with database.connection() as connection:
            connection.execute(STUCK_COMMIT)
        process, client = town.server()
        with database.transaction() as tx:
            tx.execute("SELECT pg_advisory_xact_lock(4711)")
            told = pool.submit(post, client, town.given[3])
            town.waits_for("locktype = 'advisory' AND objid = 4711")
            kill(process)
            assert unheard(told)
            # Postgres sees that its client is gone, and gives the commit up.
            eventually(
                lambda: not board.ask("SELECT 1 FROM pg_locks WHERE objid = 4711 AND NOT granted")
            )
        assert town.kept(3) == 0
    town.sends_again_and_all_is_granted_once()


STUCK_COMMIT = """
CREATE FUNCTION public.stuck() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(4711);
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER stuck AFTER INSERT ON vpay.inbox_events
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.stuck();
"""


@pytest.mark.more(seconds=40)
def test_a_server_killed_behind_its_commit_grants_nothing_twice(
    inbox_fleet: Fleet, board: Board, dsn: str, eventually: Eventually
) -> None:
    town = Town(inbox_fleet, board, eventually)
    with ThreadPoolExecutor(5) as pool:
        # The answer to its commit is lost: it can't say that the event is kept, and it is.
        with proxy.before(dsn) as (line, through):
            process, client = town.server(through)
            line.cut_on_answer(skip=4)  # BEGIN, the patience, the row, its job
            assert post(client, town.given[1]).status == 503
            kill(process)
        assert town.kept(1) == 1
        # Committed; the answer waits for a verdict.
        process, client = town.server()
        told = pool.submit(post, client, town.given[2])
        eventually(lambda: town.kept(2) == 1)
        kill(process)
        assert unheard(told)
        # Answered; nothing is granted yet.
        inbox_fleet.config["windows"] = {"inbox_answer": 0.01}
        process, client = town.server()
        assert post(client, town.given[3]).status == 200
        kill(process)
        assert granted(board, "evt_3") == 0
    town.sends_again_and_all_is_granted_once()


def test_a_worker_killed_in_a_grant_grants_it_once(
    inbox_fleet: Fleet, board: Board, database: Database, eventually: Eventually
) -> None:
    dispatcher = inbox_fleet.dispatcher()
    first = inbox_fleet.workers(threads=1, queues=["inbox"])
    _, client = inbox_fleet.web()
    eventually(client.is_up)
    eventually(lambda: dispatcher.said("boot") and first.said("boot"))
    with database.transaction() as tx:
        # The grant's own transaction stops at its first write.
        tx.execute("LOCK TABLE public.effects IN SHARE MODE")
        assert post(client, by_stripe(stripe_event())).body["state"] == "PENDING"
        eventually(
            lambda: board.ask(
                "SELECT 1 FROM pg_locks WHERE relation = 'public.effects'::regclass AND NOT granted"
            )
        )
        first.signal_group(signal.SIGKILL)
        first.wait()
    inbox_fleet.workers(threads=1, queues=["inbox"])
    eventually(lambda: board.ask("SELECT state FROM vpay.inbox_events") == [("done",)])
    assert granted(board, "evt_1") == 1
