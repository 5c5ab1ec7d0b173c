"""A broker is restarted, killed and starved under load; nothing is lost, nobody helps."""

from __future__ import annotations

import pytest

from tests.brokers import BrokerServer, RabbitServer
from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet, Process

EACH_TIME = 40


def start(fleet: Fleet, broker: BrokerServer, eventually: Eventually) -> tuple[Process, Process]:
    fleet.config["broker"] = {"url": broker.url()}
    fleet.config["dispatch"] = {"claim_lease": 2.0}
    dispatcher = fleet.dispatcher()
    workers = fleet.workers(processes=2, threads=4, queues=["default"])
    eventually(lambda: dispatcher.said("boot") and len(workers.said("boot")) == 2)
    return dispatcher, workers


class Load:
    """Jobs that keep coming, forty at a time."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.ids: list[int] = []

    def more(self) -> list[int]:
        new = [self.board.enqueue("in_batches", {"n": n}, batch=8) for n in range(EACH_TIME)]
        self.ids += new
        return new

    def some_ended(self) -> bool:
        return len(self.board.runs("ended")) > len(self.ids) - EACH_TIME

    def all_ended_once(self) -> bool:
        assert self.board.empty()
        assert sorted(self.board.runs("ended")) == self.ids
        return True


def older(board: Board, age: str) -> bool:
    """Whether the first run began longer ago than that."""
    query = "SELECT 1 FROM public.runs WHERE now() > at + %(age)s::interval LIMIT 1"
    return bool(board.ask(query, age=age))


def untouched(board: Board, ids: list[int]) -> bool:
    """None of `ids` runs, all are back where they were, and none is counted as failed."""
    rows = board.ask(
        "SELECT count(*), sum(failures + crashes) FROM vpay.jobs"
        " WHERE id = ANY(%(ids)s) AND started_at IS NULL",
        ids=ids,
    )
    return rows[0] == (len(ids), 0)


@pytest.mark.more(seconds=60)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_restarts_under_load_loses_no_job(
    fleet: Fleet, board: Board, any_broker: BrokerServer, eventually: Eventually, how: str
) -> None:
    dispatcher, workers = start(fleet, any_broker, eventually)
    load = Load(board)
    load.more()
    # RabbitMQ 3.10 writes the name of a new queue down within a second; a node killed before
    # that keeps the queue and never finds its leader.
    eventually(lambda: older(board, "3 s"))
    for _ in range(2):
        load.more()
        eventually(load.some_ended)
        load.more()
        (any_broker.stop if how == "stop" else any_broker.kill)()
        load.more()
        any_broker.start()
        load.more()
        eventually(load.all_ended_once, within=30)
    # The same processes as at the start: nobody had to be started anew
    assert dispatcher.popen.poll() is None
    assert workers.popen.poll() is None
    assert len(workers.said("boot")) == 2
    assert not workers.said("job_failed")


@pytest.mark.more(seconds=60)
def test_a_starved_broker_delays_jobs_and_they_run_when_it_is_fed(
    fleet: Fleet, board: Board, any_broker: BrokerServer, eventually: Eventually
) -> None:
    dispatcher, _ = start(fleet, any_broker, eventually)
    load = Load(board)
    load.more()
    eventually(load.all_ended_once)
    any_broker.starve()
    waiting = load.more()
    eventually(lambda: _told(dispatcher))
    assert untouched(board, waiting)
    any_broker.feed()
    eventually(load.all_ended_once)
    assert dispatcher.said("publish_back")


def _told(dispatcher: Process) -> bool:
    """It said, once, that it can't publish."""
    sentence = "publishing failed; claims released"
    return sum(sentence in str(line) for line in dispatcher.lines()) == 1


@pytest.mark.more(seconds=60)
def test_a_job_longer_than_the_servers_consumer_timeout_ends_once(
    fleet: Fleet, board: Board, rabbitmq: RabbitServer, eventually: Eventually
) -> None:
    """The test server's patience is 2 s (tests/rabbit.py)."""
    _, workers = start(fleet, rabbitmq, eventually)
    job = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [job])
    eventually(lambda: older(board, "6 s"))
    load = Load(board)
    load.more()
    eventually(lambda: len(board.runs("ended")) == EACH_TIME)
    board.open("g")
    eventually(board.empty)
    assert board.runs("began") == [job]
    assert not workers.said("broker_lost")
