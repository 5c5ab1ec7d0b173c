"""Somebody who reads and writes the broker as they like: nothing runs that Postgres did not
lease to the message, nothing is counted against a job, and no thread or neighbour is harmed."""

from __future__ import annotations

import json
import pickle
import uuid
from typing import Any

import pytest

from tests.brokers import BrokerServer
from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from tests.e2e.test_broker_faults import _counter, fleet
from vpay_tasks.runtime.envelope import SIZE_MAX

__all__ = ["fleet"]


def forged(ids: list[int], token: object, **more: Any) -> bytes:
    body = {"v": 1, "q": "default", "ids": ids, "t": str(token), **more}
    return json.dumps(body, separators=(",", ":")).encode()


def junk(job: int, token: str) -> list[bytes]:
    """What is no message of ours, with a job and a token that would do in one."""
    stock = {
        "queue_name": "default",
        "actor_name": "run default",
        "args": [1],
        "kwargs": {},
        "options": {},
        "message_id": str(uuid.uuid4()),
        "message_timestamp": 1,
    }
    options: dict[str, Any] = {
        "pipe_target": stock,
        "on_success": "run payments",
        "on_failure": "run payments",
        "max_retries": 1_000_000,
        "eta": 1,
        "time_limit": 1,
    }
    return [
        json.dumps(stock).encode(),
        json.dumps({**stock, "options": options}).encode(),
        json.dumps({**stock, "actor_name": "no such actor"}).encode(),
        json.dumps({**stock, "queue_name": "payments"}).encode(),
        *[forged([job], token, **{name: value}) for name, value in options.items()],
        forged([job], token, options=options),
        forged([job], token, queue_name="payments"),
        forged([job], token, q="payments"),
        pickle.dumps({"v": 1, "q": "default", "ids": [job], "t": token}),
        forged([job], token) + b" " * 10_000_000,
        b"[" * SIZE_MAX,
        b'{"v":1,"q":"default","ids":[' + b"9" * 4_000 + b'],"t":"x"}',
        b'{"v":1,"q":"default","ids":[' + b"9" * 5_000 + b'],"t":"x"}',
        b'{"v":1,"q":"default","ids":[1e999],"t":"x"}',
        b'{"v":1,"q":"default","ids":[NaN],"t":"x"}',
        forged([job], token).replace(b'"ids":[', b'"ids":[-'),
        forged([job], token).replace(b":", b": "),  # another spelling of the truth
        forged([job, job], token),
        forged([job], token, v="1"),
        b"\x00" * 100,
        b"",
    ]


def _stands(board: Board) -> list[tuple[Any, ...]]:
    """All of a job's row that a message could have moved."""
    return board.ask(
        "SELECT id, lease, started_at, lease_until, claims, starts, failures, crashes, run_at,"
        " last_error FROM vpay.jobs WHERE queue = 'default' ORDER BY id"
    )


@pytest.mark.more(seconds=20)
def test_whoever_writes_to_the_broker_starts_nothing_and_costs_nothing(
    fleet: Fleet, board: Board, any_broker: BrokerServer, eventually: Eventually
) -> None:
    # Given two claimed jobs whose messages somebody has read and taken, and one that is not.
    board.open("g")
    first, second = (board.enqueue("held", {"gate": "g"}) for _ in range(2))
    taken = {
        id_: str(token)
        for id_, token in board.ask(
            "UPDATE vpay.jobs SET lease = gen_random_uuid(), locked_by = 'd', locked_at = now(),"
            " lease_until = now() + interval '1 hour', claims = 1"
            " WHERE queue = 'default' RETURNING id, lease"
        )
    }
    unclaimed = board.enqueue("held", {"gate": "g"})
    before = _stands(board)
    workers = fleet.workers(threads=2, queues=["default"])
    eventually(lambda: workers.said("boot"))
    # When they put back everything but the truth
    guesses = [
        forged([second], taken[first]),
        forged([first], taken[second]),
        forged([first], uuid.uuid4()),
        forged([unclaimed], taken[first]),
        forged([unclaimed], uuid.UUID(int=0)),
        forged([10**18], taken[first]),
        forged([unclaimed, 10**18], uuid.uuid4()),
    ]
    nonsense = junk(first, taken[first])
    any_broker.push("default", [*nonsense, *guesses])
    # Then it is all counted, and nothing has happened
    eventually(lambda: _counter(board, "messages_refused") == len(nonsense))
    eventually(lambda: _counter(board, "duplicates_refused") == len(guesses))
    assert _stands(board) == before
    assert board.runs("began") == []
    # and the truth among it still runs, once however often it is said, alone.
    truth = forged([first, second, unclaimed], taken[first])
    any_broker.push("default", [nonsense[0], truth, nonsense[-2], truth, truth])
    eventually(lambda: board.runs("ended") == [first])
    any_broker.push("default", [truth, forged([second], taken[second])])
    eventually(lambda: board.runs("ended") == [first, second])
    eventually(lambda: _stands(board) == before[-1:])
    assert board.runs("began") == [first, second]
    assert not workers.said("dead_threads")
    assert workers.popen.poll() is None
