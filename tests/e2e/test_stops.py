"""Workers are told to stop, are stopped, are too slow to stop."""

from __future__ import annotations

import os
import signal

import redis

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from vpay_tasks.runtime.carrier import key


def test_a_drained_worker_finishes_what_runs_and_exits_0(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.dispatcher()
    workers = fleet.workers(threads=2, queues=["default"])
    job = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [job])
    workers.signal_group(signal.SIGTERM)  # to master and children, which get it twice
    eventually(lambda: workers.said("drain"))
    late = board.enqueue("in_batches", {"n": 1})
    board.open("g")
    assert workers.wait() == 0
    assert board.runs("ended") == [job]
    assert [row[0] for row in board.left()] == [late]
    # The one that came too late is with the next worker at once.
    fleet.workers(threads=2, queues=["default"])
    eventually(board.empty)


def test_what_was_not_begun_is_handed_back_at_the_signal(
    fleet: Fleet, board: Board, broker_url: str, eventually: Eventually
) -> None:
    # Given a process whose one thread is busy, and a message of another queue that it holds
    fleet.dispatcher()
    workers = fleet.workers(threads=1, queues=["default", "inbox"])
    job = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [job])
    waiting = board.enqueue("elsewhere", {}, queue="inbox")
    with redis.Redis.from_url(broker_url) as client:
        eventually(lambda: _is_leased(board, waiting) and client.llen(key("inbox")) == 0)
    # When it is told to stop, the row is free at once, while the other job still runs
    workers.signal(signal.SIGTERM)
    eventually(lambda: not _is_leased(board, waiting), within=5)
    assert _is_leased(board, job)
    board.open("g")
    assert workers.wait() == 0
    assert not board.ask("SELECT 1 FROM vpay.jobs WHERE lease IS NOT NULL")


def _is_leased(board: Board, job: int) -> bool:
    query = "SELECT 1 FROM vpay.jobs WHERE id = %(id)s AND lease IS NOT NULL"
    return bool(board.ask(query, id=job))


def test_a_grace_that_is_over_hands_the_lease_back_and_exits_1(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.config["worker"].update({"grace": 0.5, "run_lease": 600.0})
    fleet.dispatcher()
    workers = fleet.workers(threads=2, queues=["default"])
    job = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [job])
    workers.signal(signal.SIGTERM)
    assert workers.wait() == 1
    assert [line["abandoned"] for line in workers.said("grace_over")] == [1]
    ((_, _, leased, _, failures, crashes, *_),) = board.left()
    assert (leased, failures, crashes) == (False, 0, 0)
    board.open("g")
    fleet.workers(threads=2, queues=["default"])
    eventually(board.empty)
    assert board.runs("ended") == [job]


def test_a_patience_of_dramatiq_below_our_grace_does_not_hide_what_still_runs(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.config["worker"] |= {"grace": 3.0, "run_lease": 600.0}
    fleet.dispatcher()
    workers = fleet.workers("--worker-shutdown-timeout", "200", threads=2, queues=["default"])
    job = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [job])
    workers.signal(signal.SIGTERM)
    assert workers.wait() == 1
    assert workers.said("grace_over")
    ((_, _, leased, _, failures, crashes, *_),) = board.left()
    assert (leased, failures, crashes) == (False, 0, 0)


def test_a_hand_back_that_fails_keeps_no_process_alive(
    fleet: Fleet, board: Board, broker_url: str, eventually: Eventually
) -> None:
    fleet.config["worker"] |= {"grace": 1.0, "run_lease": 600.0}
    fleet.dispatcher()
    workers = fleet.workers(threads=1, queues=["default", "inbox"])
    job = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [job])
    waiting = board.enqueue("elsewhere", {}, queue="inbox")
    with redis.Redis.from_url(broker_url) as client:
        eventually(lambda: _is_leased(board, waiting) and client.llen(key("inbox")) == 0)
    with board.database.transaction() as tx:
        tx.execute("SELECT 1 FROM vpay.jobs FOR UPDATE")  # nothing can be released
        workers.signal(signal.SIGTERM)
        assert workers.wait() == 1
    assert [line["jobs"] for line in workers.said("release")] == [1, 1]


def test_a_worker_that_still_waits_for_its_servers_can_be_stopped(
    fleet: Fleet, eventually: Eventually
) -> None:
    fleet.config["database"] = {"url": "postgresql://nobody@127.0.0.1:9/none"}
    workers = fleet.workers()
    eventually(lambda: workers.said("boot_wait"))
    workers.signal_group(signal.SIGTERM)
    assert workers.wait() == 69


def test_a_job_over_its_budget_is_cancelled_and_its_thread_lives_on(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.dispatcher()
    workers = fleet.workers(threads=1, queues=["default"])
    job = board.enqueue("overruns", {"gate": "g"})
    eventually(lambda: board.runs("cancelled") == [job])
    assert [line["kind"] for line in workers.said("over_budget")] == ["overruns"]
    next_one = board.enqueue("in_batches", {"n": 1})
    eventually(lambda: board.runs("ended") == [next_one])


def test_a_handler_that_raises_system_exit_ends_no_thread(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.dispatcher()
    fleet.workers(threads=1, queues=["default"])
    board.enqueue("exits", {})
    next_one = board.enqueue("in_batches", {"n": 1})
    eventually(lambda: board.runs("ended") == [next_one])
    ((_, _, _, _, failures, *_),) = board.left()
    assert failures == 1


def test_a_failing_task_walks_its_ladder_and_is_parked_with_its_text(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.config["ladders"] = {"error": [0.05]}
    fleet.dispatcher()
    fleet.workers(threads=1, queues=["default"])
    job = board.enqueue("raises", {"text": "no \ud800 luck".encode("utf-8", "replace").decode()})
    eventually(lambda: board.ask("SELECT 1 FROM vpay.jobs WHERE dead_reason IS NOT NULL"))
    ((id_, _, _, _, _, _, reason, error),) = board.left()
    assert (id_, reason) == (job, "attempts_exhausted")
    assert "RuntimeError: no" in error
    assert len(board.runs("began")) == 3


def test_a_second_signal_ends_a_draining_worker_at_once(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.dispatcher()
    workers = fleet.workers(threads=1, queues=["default"])
    job = board.enqueue("held", {"gate": "never"})
    eventually(lambda: board.runs("began") == [job])
    (child,) = (pid for pid in workers.children() if _is_worker(pid))
    os.kill(child, signal.SIGTERM)
    eventually(lambda: workers.said("drain"))
    eventually(lambda: _again(child) is None)
    assert workers.wait() == 1


def _is_worker(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - /proc is read, not kept
        return b"resource_tracker" not in file.read()


def _again(pid: int) -> int | None:
    """Signal the process once more; None once it is gone."""
    try:
        os.kill(pid, signal.SIGTERM)
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - /proc is read, not kept
            return None if file.read().rsplit(")", 1)[1].split()[0] == "Z" else pid
    except (ProcessLookupError, FileNotFoundError):
        return None
