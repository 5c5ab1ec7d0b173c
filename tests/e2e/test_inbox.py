"""Vendors' webhooks with real servers, dispatchers and workers, some of which are killed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Eventually
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


@pytest.mark.more(seconds=12)
def test_a_server_killed_inside_a_body_or_behind_its_answer_loses_nothing_that_it_spoke_for(
    inbox_fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    inbox_fleet.config["windows"] = {"inbox_answer": 0.01}
    process, client = inbox_fleet.web()
    eventually(client.is_up)
    with client.socket() as line:
        line.sendall(b"POST /inbox/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        kill(process)
    process, client = inbox_fleet.web()
    eventually(client.is_up)
    given = by_stripe(stripe_event())
    assert post(client, given).status == 200
    kill(process)
    assert board.ask("SELECT state FROM vpay.inbox_events") == [("accepted",)]
    inbox_fleet.dispatcher()
    inbox_fleet.workers(threads=1, queues=["inbox"])
    eventually(lambda: board.ask("SELECT state FROM vpay.inbox_events") == [("done",)])
    assert granted(board, "evt_1") == 1


def kill(process: Process) -> None:
    process.signal(signal.SIGKILL)
    process.wait()
