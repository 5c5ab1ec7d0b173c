"""Postgres restarts, hangs up, is not there: everything waits, nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import PG, Eventually
from tests.e2e import proxy
from tests.e2e.conftest import STEERING, Board
from tests.e2e.fleet import Fleet
from vpay_sandbox.postgres import Postgres
from vpay_tasks.store import migrate
from vpay_tasks.store.db import Database, connect


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Postgres]:
    """A Postgres of this test's own, migrated, that it may restart."""
    with Postgres(tmp_path / "postgres", version=PG) as server:
        with connect(server.url(), application="tests") as connection:
            migrate.apply(connection)
            connection.execute(STEERING.encode())
        yield server


def test_live_workers_survive_a_restart_of_postgres_without_losing_a_row(
    server: Postgres, tmp_path: Path, broker_url: str, eventually: Eventually
) -> None:
    fleet = Fleet(tmp_path, server.url(), broker_url)
    # A start that found no Postgres is not repeated: its claim has to expire.
    fleet.config["dispatch"] = {"claim_lease": 2.0}
    database = Database(server.url(), application="tests")
    board = Board(database)
    try:
        dispatcher = fleet.dispatcher()
        fleet.workers(threads=4, queues=["default"])
        held = [board.enqueue("held", {"gate": "g"}) for _ in range(3)]
        eventually(lambda: sorted(board.runs("began")) == held)
        for n in range(200):
            board.enqueue("in_batches", {"n": n}, batch=8)
        server.restart()
        quick = [board.enqueue("in_batches", {"n": n}, batch=8) for n in range(200)]
        # Work goes on, and the reaper has had the time to be wrong.
        eventually(lambda: set(quick) <= set(board.runs("ended")))
        eventually(lambda: _settled_in(board))
        board.open("g")
        eventually(board.empty)
        assert sorted(set(board.runs("ended")) & set(held)) == held
        assert sorted(board.runs("began")) == held, "none of the running jobs was freed"
        assert not [line for line in dispatcher.said("reap") if line["why"] != "claim_expired"]
    finally:
        fleet.end()
        database.close()


@pytest.mark.all  # 144 s
def test_a_dispatcher_behind_a_proxy_that_hangs_goes_on(
    fleet: Fleet, board: Board, dsn: str, eventually: Eventually
) -> None:
    fleet.config["dispatch"] = {"claim_lease": 2.0}
    fleet.workers(threads=2)
    with proxy.before(dsn) as (line, through):
        fleet.config["database"] = {"url": through}
        fleet.dispatcher()
        for _ in range(2):
            job = board.enqueue("in_batches", {"n": 1}, batch=5)
            # As long as a statement may take, and what an answer may take beyond that.
            eventually(partial(_ended, board, job), within=180)
            line.forget()
        fleet.end()


def _ended(board: Board, job: int) -> bool:
    return job in board.runs("ended")


def _settled_in(board: Board) -> bool:
    """The reaper's session has stood long enough to free rows, and would have."""
    return bool(
        board.ask(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'vpay reap'"
            " AND now() - backend_start > interval '4 seconds'"
        )
    )


def test_postgres_out_of_reach_at_boot_is_a_clear_line_and_exit_69(
    fleet: Fleet, eventually: Eventually
) -> None:
    fleet.config["database"] = {"url": "postgresql://nobody@127.0.0.1:9/none"}
    dispatcher, workers = fleet.dispatcher(), fleet.workers()
    for process in (dispatcher, workers):
        eventually(partial(process.said, "boot_wait"))
        (line,) = process.said("boot_wait")
        assert "Postgres is out of reach" in line["error"]
    # A person who gives up on it is obeyed.
    dispatcher.signal(signal.SIGTERM)
    assert dispatcher.wait() == 69
    assert "Traceback" not in dispatcher.log.read_text()


def test_wrong_settings_end_both_processes_with_every_fault_and_exit_78(fleet: Fleet) -> None:
    fleet.config["database"]["pol"] = 3
    fleet.config["dispatch"] = {"window": 99}
    for process in (fleet.dispatcher(), fleet.workers()):
        assert process.wait() == 78
        text = process.log.read_text()
        assert "did you mean 'pool'?" in text
        assert "dispatch.window" in text
        assert "Traceback" not in text


def test_a_task_module_that_is_missing_is_a_settings_fault(fleet: Fleet) -> None:
    fleet.config["worker"]["modules"] = ["no_such_module"]
    dispatcher = fleet.dispatcher()
    assert dispatcher.wait() == 78
    assert "cannot import no_such_module" in dispatcher.log.read_text()


def test_a_database_that_was_never_migrated_is_named_with_the_command(
    fleet: Fleet, empty_dsn: str, eventually: Eventually
) -> None:
    fleet.config["database"] = {"url": empty_dsn}
    dispatcher = fleet.dispatcher()
    eventually(lambda: dispatcher.said("boot_wait"))
    assert "vpay-tasks migrate" in dispatcher.said("boot_wait")[0]["error"]
