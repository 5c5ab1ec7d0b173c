"""A user's task from enqueue to settled, by real processes."""

from __future__ import annotations

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet


def test_a_job_runs_once_and_its_row_is_gone(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    fleet.dispatcher()
    fleet.workers()
    ids = [board.enqueue("in_batches", {"n": n}, batch=8) for n in range(50)]
    eventually(board.empty)
    assert sorted(board.runs("ended")) == ids
