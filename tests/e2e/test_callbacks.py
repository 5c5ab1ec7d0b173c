"""A thousand callbacks by real HTTP on real processes, and what the rail gets to hear of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from tests.payment_kit import make_charge
from tests.payments.poll_kit import STATUS, told
from tests.rails.benches import MTN
from tests.web.client import Client
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.store.db import Database

KEY = "bm90LWEtc2VjcmV0LWJ1dC0zMi1ieXRlcy1sb25nISE="
FLOOR = 60.0
"""Longer than the bursts of this test take on any machine."""


@pytest.fixture
def rail(tmp_path: Path) -> Iterator[StubRail]:
    with StubRail(journal=tmp_path / "rail.jsonl") as rail:
        yield rail


def burst(clients: list[Client], charge: Charge, times: int) -> None:
    """`times` callbacks at once, dealt out to the servers."""
    body = MTN.callback(charge.provider_reference_id)
    with ThreadPoolExecutor(24) as pool:
        answers = [
            pool.submit(clients[n % len(clients)].call_back, MTN.code, body) for n in range(times)
        ]
        assert {future.result().status for future in answers} == {200}


def comes_back_after_the_floor(board: Board) -> bool:
    """The poll waits, and not for less than the floor since the last ask."""
    return board.ask(
        "SELECT jobs.lease IS NULL AND jobs.run_at >= charges.last_asked_at + interval '60 s'"
        " FROM vpay.jobs, vpay.charges WHERE jobs.kind = 'poll_charge'"
    ) == [(True,)]


def test_a_thousand_callbacks_in_a_burst_are_one_ask_also_while_it_is_being_asked(
    fleet: Fleet, board: Board, database: Database, rail: StubRail, eventually: Eventually
) -> None:
    fleet.config |= {
        "rails": {MTN.code: MTN.table(rail)},
        "keys": {"payer_ref": [KEY]},
        "windows": {"callback_floor": FLOOR},
        # A burst keeps the database busy; how busy is this machine's affair.
        "web": {"patience": 20.0},
    }
    charge = make_charge(database, state=State.PENDING, age=300, polls=9)
    board.ask("UPDATE vpay.jobs SET run_at = now() + interval '1 hour' RETURNING id")
    rail.script(STATUS, told(charge, "PENDING"), times=None)
    clients = [fleet.web("--workers", "2")[1] for _ in range(2)]
    fleet.dispatcher()
    fleet.workers(threads=2, queues=["payments"])
    for client in clients:
        eventually(client.is_up)
    burst(clients, charge, 1_000)
    eventually(partial(comes_back_after_the_floor, board))
    assert len(rail.requests(STATUS)) == 1

    board.ask(
        "UPDATE vpay.charges SET last_asked_at = last_asked_at - interval '1 hour' RETURNING id"
    )
    with rail.hold(STATUS):
        burst(clients, charge, 1)
        rail.wait_requests(STATUS, 2)
        burst(clients, charge, 200)
    eventually(partial(comes_back_after_the_floor, board))
    burst(clients, charge, 200)
    assert comes_back_after_the_floor(board)
    assert len(rail.requests(STATUS)) == 2
