"""Behind a transaction pooler: everything works but the fast path."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from tests.pooler import LIMITS, Pooler
from vpay_tasks.store import jobs, migrate
from vpay_tasks.store.db import Database, connect
from vpay_tasks.transport import Pooled

DOCTOR = "import sys; from vpay_tasks.cli import main; sys.exit(main(['doctor', '--json']))"
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def role(dsn: str) -> Iterator[str]:
    """A role with the limits that the README gives it."""
    name = f"pooled_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER".encode())
        connection.execute(LIMITS.format(role=name).encode())
        yield name
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (name,)
        )
        connection.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def pooler(tmp_path: Path, dsn: str, role: str) -> Iterator[Pooler]:
    (tmp_path / "pooler").mkdir()
    pooler = Pooler(tmp_path / "pooler", dsn, user=role)
    yield pooler
    pooler.close()


@pytest.fixture
def pooled_fleet(fleet: Fleet, pooler: Pooler) -> Fleet:
    fleet.config["database"] = {"url": pooler.url, "pulse": "lease"}
    return fleet


def status(fleet: Fleet, *arguments: str) -> str:
    command = [
        sys.executable,
        "-c",
        "import sys; from vpay_tasks.cli import main; sys.exit(main())",
    ]
    done = subprocess.run(
        [*command, "status", *arguments],
        env=fleet.environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_jobs_run_and_settle_behind_a_pooler(
    pooled_fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    dispatcher = pooled_fleet.dispatcher()
    workers = pooled_fleet.workers(processes=2)
    eventually(lambda: workers.said("boot"))
    for n in range(60):
        board.enqueue("in_batches", {"n": n})
    eventually(board.empty)
    seen = json.loads(status(pooled_fleet, "--json"))
    assert seen["path"] == "pooled"
    assert seen["attention"] == []
    assert [worker["state"] for worker in seen["workers"]] == ["alive", "alive"]
    assert "pooled (leases tell the dead" in status(pooled_fleet)
    troubles = ("pulse_lost", "slow_statement")
    assert not [t for t in troubles if dispatcher.said(t) or workers.said(t)]


def test_a_killed_workers_job_comes_back_with_its_lease_behind_a_pooler(
    pooled_fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    pooled_fleet.config["worker"]["run_lease"] = 2.0
    dispatcher = pooled_fleet.dispatcher()
    first = pooled_fleet.workers(threads=2, queues=["default"])
    job = board.enqueue("held", {"gate": "g"})
    eventually(lambda: board.runs("began") == [job])
    first.signal_group(signal.SIGKILL)
    pooled_fleet.workers(threads=2, queues=["default"])
    eventually(lambda: board.runs("began") == [job, job])
    board.open("g")
    eventually(board.empty)
    assert board.runs("ended") == [job]
    assert [line["why"] for line in dispatcher.said("reap")] == ["run_expired"]


def test_statements_and_hints_need_no_session_of_their_own(pooler: Pooler) -> None:
    """More executions than psycopg prepares at, over more connections than sessions."""
    database = Database(Pooled(pooler.url), size=4)
    connections = [connect(Pooled(pooler.url), application="tests") for _ in range(4)]
    try:
        for n in range(40):
            for connection in connections:
                jobs.find_by_key(connection, f"k{n}")
                jobs.wake(connection)
            with database.transaction() as tx:
                jobs.find_by_key(tx, "k")
    finally:
        database.close()
        for connection in connections:
            connection.close()


def test_migrations_run_through_a_pooler_and_leave_no_lock(tmp_path: Path, empty_dsn: str) -> None:
    pooler = Pooler(tmp_path, empty_dsn, user="postgres")
    try:
        with connect(Pooled(pooler.url), application="tests") as connection:
            assert migrate.apply(connection) == migrate.available()
            assert migrate.apply(connection) == []
        with psycopg.connect(empty_dsn) as direct:
            found = direct.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 86"
            ).fetchone()
        assert found == (0,)
    finally:
        pooler.close()


def test_a_role_without_limits_is_told(
    pooled_fleet: Fleet, role: str, dsn: str, pooler: Pooler
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {role} RESET ALL".encode())
    (line,) = json.loads(status(pooled_fleet, "--json"))["attention"]
    assert "idle_in_transaction_session_timeout, jit, lock_timeout, statement_timeout" in line


def test_the_readme_gives_the_role_its_limits_in_these_words() -> None:
    assert LIMITS.format(role="vpay").strip() in README.read_text("utf-8")


def test_the_doctor_finds_nothing_wrong_with_being_behind_a_pooler(
    pooled_fleet: Fleet, eventually: Eventually
) -> None:
    pooled_fleet.dispatcher()
    pooled_fleet.workers()

    def found() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", DOCTOR],
            env=pooled_fleet.environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        findings = json.loads(done.stdout)["findings"]
        return [finding["code"] for finding in findings]

    # The servers of tests write without fsync.
    eventually(lambda: found() == ["fsync_off"], within=40)
