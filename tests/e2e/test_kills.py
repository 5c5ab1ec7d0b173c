"""Processes die by SIGKILL; their jobs run again, once, and settle once."""

from __future__ import annotations

import signal

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet

TEN_MINUTES = 600.0


def test_a_killed_workers_job_is_freed_long_before_its_lease_ends(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.config["worker"]["run_lease"] = TEN_MINUTES
    dispatcher = fleet.dispatcher()
    first = fleet.workers(threads=2, queues=["default"])
    job = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [job])
    second = fleet.workers(threads=2, queues=["default"])
    eventually(lambda: second.said("boot"))
    first.signal_group(signal.SIGKILL)
    eventually(lambda: board.runs("began") == [job, job])
    board.open("g")
    eventually(board.empty)
    assert board.runs("ended") == [job]
    assert [line["why"] for line in dispatcher.said("reap")] == ["worker_gone"]


def test_a_worker_killed_inside_a_statement_is_noticed_at_once(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.config["worker"]["run_lease"] = TEN_MINUTES
    dispatcher = fleet.dispatcher()
    first = fleet.workers(threads=2, queues=["default"])
    job = board.enqueue("inside_a_statement", {})
    eventually(lambda: board.runs("began") == [job])
    eventually(lambda: board.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
    board.open(f"killed {job}")
    fleet.workers(threads=2, queues=["default"])
    first.signal_group(signal.SIGKILL)
    eventually(board.empty)
    assert board.runs("ended") == [job]
    assert [line["why"] for line in dispatcher.said("reap")] == ["worker_gone"]


def test_a_dispatcher_killed_by_kill_9_leaves_the_other_one_working(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    first, second = fleet.dispatcher(), fleet.dispatcher()
    fleet.workers(threads=2, queues=["default"])
    eventually(lambda: first.said("boot") and second.said("boot"))
    first.signal(signal.SIGKILL)
    ids = [board.enqueue("in_batches", {"n": n}) for n in range(20)]
    eventually(board.empty)
    assert sorted(board.runs("ended")) == ids
