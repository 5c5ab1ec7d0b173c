"""The broker loses, copies, forges and goes away; only speed may suffer. Each on both."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.brokers import BrokerServer
from tests.conftest import Eventually
from tests.e2e import proxy
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet


@pytest.fixture
def fleet(fleet: Fleet, any_broker: BrokerServer) -> Fleet:
    """On each broker in turn."""
    fleet.config["broker"] = {"url": any_broker.url()}
    return fleet


def test_a_flushed_broker_loses_messages_and_no_job(
    fleet: Fleet, board: Board, any_broker: BrokerServer, eventually: Eventually
) -> None:
    # Given one handler that runs and others claimed, their messages still in the broker
    fleet.config["dispatch"] = {"claim_lease": 1.0}
    fleet.dispatcher()
    workers = fleet.workers(threads=1, queues=["default"])
    running = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [running])
    waiting = [board.enqueue("held", {"gate": "g"}) for _ in range(4)]
    eventually(lambda: any_broker.depth("default"))
    assert board.ask("SELECT 1 FROM vpay.jobs WHERE lease IS NOT NULL AND started_at IS NULL")
    # When the broker forgets everything
    any_broker.forget("default")
    # Then the claims expire and are published anew; everything finishes, once each
    eventually(lambda: _reaped(board))
    board.open("g")
    eventually(board.empty)
    assert sorted(board.runs("ended")) == sorted([running, *waiting])
    # and a loss costs a claim, never a failure
    assert not workers.said("job_failed")


def _reaped(board: Board) -> bool:
    """A row was claimed more often than it was started: the loss is counted on it."""
    rows = board.ask(
        "SELECT sum(claims - starts), sum(failures + crashes) FROM vpay.jobs"
        " WHERE queue = 'default' AND started_at IS NULL"
    )
    lost, counted = rows[0]
    return bool(lost and lost >= 2 and counted == 0)


def test_poisoned_foreign_oversized_and_repeated_messages_harm_nobody(
    fleet: Fleet, board: Board, any_broker: BrokerServer, eventually: Eventually
) -> None:
    fleet.dispatcher()
    workers = fleet.workers(threads=2, queues=["default"])
    eventually(lambda: workers.said("boot"))
    stray = {"v": 1, "q": "default", "ids": [1], "t": str(uuid.uuid4())}
    poison = [
        b"\xff\xfe\x00",
        b"null",
        b"[" * 3_000,
        b'{"v":1}',
        _written({**stray, "v": 2}),
        _written({**stray, "q": "payments"}),
        _written({**stray, "ids": [True]}),
        _written({**stray, "ids": [2**63]}),
        _written({**stray, "ids": list(range(1, 200))}),
        _written({**stray, "t": "no token"}),
        _written({**stray, "more": 1}),
        b"x" * 5_000,
    ]
    any_broker.push("default", [*poison, *[_written(stray)] * 2])
    ids = [board.enqueue("in_batches", {"n": n}) for n in range(5)]
    eventually(board.empty)
    assert sorted(board.runs("ended")) == ids
    eventually(lambda: _counter(board, "messages_refused") == len(poison))
    assert _counter(board, "duplicates_refused") == 2
    assert not workers.said("dead_threads")
    assert workers.popen.poll() is None


def _written(message: object) -> bytes:
    """As ours are: another spelling would be refused for that alone."""
    return json.dumps(message, separators=(",", ":")).encode()


def _counter(board: Board, name: str) -> int:
    rows = board.ask(
        "SELECT coalesce(sum((stats->'counters'->>%(name)s)::int), 0) FROM vpay.workers",
        name=name,
    )
    return int(rows[0][0])


def test_a_broker_that_goes_away_and_comes_back_delays_and_loses_nothing(
    fleet: Fleet, board: Board, any_broker: BrokerServer, eventually: Eventually
) -> None:
    with proxy.before(any_broker.url()) as (line, through):
        fleet.config["broker"] = {"url": through}
        dispatcher = fleet.dispatcher()
        workers = fleet.workers(threads=2, queues=["default"])
        eventually(lambda: dispatcher.said("boot") and workers.said("boot"))
        line.refuse()
        ids = [board.enqueue("in_batches", {"n": n}) for n in range(5)]
        # The claims that can't be published are given back, not held.
        eventually(lambda: _released(board, ids))
        line.accept_again()
        eventually(board.empty)
        assert sorted(board.runs("ended")) == ids


def _released(board: Board, ids: list[int]) -> bool:
    rows = board.ask(
        "SELECT count(*) FROM vpay.jobs WHERE id = ANY(%(ids)s) AND claims > 0 AND lease IS NULL",
        ids=ids,
    )
    return bool(rows[0][0] == len(ids))
