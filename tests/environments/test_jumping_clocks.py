"""Clocks that jump by an hour in the middle of payments: the processes', and Postgres's own."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.conftest import PG, Eventually
from tests.environments.servers import UNSYNCED, asked, installed
from tests.environments.street import Street
from tests.faketime import SLEEPING, JumpingPostgres, following, turn
from tests.invariants import install
from vpay_tasks.transport import Pooled

HOUR = 3_600.0
JUMPS = (1.0, -1.0, 0.0)
MORE = 8
NOW = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"
DOCS = Path(__file__).parents[2] / "docs" / "failover.md"
CATCH_UP = re.findall(r"^UPDATE .*?;$", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
"""What the docs tell an operator to do, word for word."""


def paying(street: Street, url: str, jump: Callable[[float], None], eventually: Eventually) -> None:
    """A jump to each of JUMPS, with payments behind each."""
    street.open(eventually)
    with street.customers() as charges:
        for hours in (*JUMPS, None):
            wanted = charges() + MORE
            eventually(partial(_reached, charges, wanted), within=60)
            if hours is not None:
                jump(hours)
    assert len(CATCH_UP) == 3
    for statement in CATCH_UP:
        asked(url, statement)
    street.drain(url, eventually)
    assert all(one.popen.poll() is None for one in street.fleet.processes)


def broken(street: Street, url: str) -> dict[str, list[str]]:
    """A signature of another hour is refused, and made again when the clock is right."""
    found = street.check(url)
    found["I6"] = [line for line in found.get("I6", []) if "did not verify" not in line]
    return {name: lines for name, lines in found.items() if lines}


def _reached(charges: Callable[[], int], wanted: int) -> bool:
    return charges() >= wanted


TAKEN_AWAY = """
    SELECT count(*)::int FROM audit.jobs
    WHERE op = 'UPDATE' AND old_started AND old_lease IS NOT NULL AND lease IS NULL
        AND settled_by IS NOT DISTINCT FROM old_settled_by
"""
"""Runs that lost their lease without an end of their own: somebody took a live process for dead."""


@pytest.mark.more(seconds=45)
def test_processes_whose_clocks_jump_do_nothing_twice_and_nothing_late(
    tmp_path: Path, dsn: str, broker_url: str, eventually: Eventually
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        install(connection)
    clock = tmp_path / "clock"
    turn(clock, 0)
    street = Street(tmp_path, dsn, broker_url)
    street.fleet.extra |= {**following(clock), "PYTHONPATH": str(SLEEPING)}
    try:
        paying(street, dsn, lambda hours: turn(clock, hours), eventually)
        assert broken(street, dsn) == {}
        assert asked(dsn, TAKEN_AWAY) == [(0,)]
    finally:
        street.close()


@pytest.mark.more(seconds=60)
def test_a_postgres_whose_clock_jumps_settles_everything_once(
    tmp_path: Path, broker_url: str, eventually: Eventually
) -> None:
    with JumpingPostgres(tmp_path / "pg", settings=UNSYNCED, version=PG) as server:
        url = Pooled(server.url())  # see tests/payments/test_clocks.py
        installed(url)
        street = Street(tmp_path, server.url(), broker_url)
        street.set("database", pulse="lease")
        street.set("windows", horizon=86_400)  # which no jump of an hour is to reach

        def jump(hours: float) -> None:
            server.jump(hours)
            ahead = asked(url, NOW)[0][0] - time.time()
            assert ahead == pytest.approx(hours * HOUR, abs=60)

        try:
            paying(street, url, jump, eventually)
            assert broken(street, url) == {}
        finally:
            street.close()
