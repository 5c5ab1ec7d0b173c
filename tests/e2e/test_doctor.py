"""The doctor beside a real fleet, on a Postgres with production's settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from tests.conftest import PG, Eventually
from tests.e2e.fleet import Fleet
from vpay_sandbox.postgres import Postgres
from vpay_tasks.store import migrate, vitals
from vpay_tasks.store.db import connect

DOCTOR = "import sys; from vpay_tasks.cli import main; sys.exit(main(['doctor', '--json']))"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with Postgres(
        tmp_path / "postgres", settings={"max_prepared_transactions": "2"}, version=PG
    ) as server:
        with connect(server.url(), application="tests") as connection:
            migrate.apply(connection)
        yield server.url()


@pytest.fixture
def fleet(tmp_path: Path, server: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, server, broker_url)
    fleet.config["worker"]["modules"] = []
    yield fleet
    fleet.end()


def doctor(fleet: Fleet) -> tuple[int, dict[str, Any]]:
    """Exit code, and the findings by code."""
    done = subprocess.run(
        [sys.executable, "-c", DOCTOR],
        env=fleet.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    findings = json.loads(done.stdout)["findings"]
    return done.returncode, {finding["code"]: finding["remedy"] for finding in findings}


def test_nothing_is_wrong_with_a_fleet_until_something_is(
    fleet: Fleet, server: str, eventually: Eventually
) -> None:
    assert doctor(fleet) == (1, {"dispatcher_missing": "vpay-dispatch"})
    dispatcher = fleet.dispatcher()
    workers = fleet.workers(processes=1, threads=2)
    eventually(lambda: doctor(fleet) == (0, {}), within=40)

    with connect(server, application="tests") as connection:
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE public.prepared (id integer)")
        connection.execute("PREPARE TRANSACTION 'forgotten'")
        held = [(one.holder, one.name) for one in vitals.horizon(connection)]
    assert ("prepared", "forgotten") in held
    assert doctor(fleet) == (0, {})  # it is young

    workers.signal_group(SIGKILL)
    unserved = "dramatiq vpay_tasks.actors --queues housekeeping"

    def orphaned() -> bool:
        code, found = doctor(fleet)
        return code == 1 and found.get("queue_unserved") == unserved and "workers_lost" in found

    eventually(orphaned, within=40)
    dispatcher.signal(SIGKILL)
    eventually(lambda: "dispatcher_missing" in doctor(fleet)[1], within=40)
