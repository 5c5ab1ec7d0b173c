"""Clocks that jump by an hour in the middle of payments: the processes', and Postgres's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Eventually
from tests.environments.servers import asked
from tests.environments.street import Street
from tests.faketime import SLEEPING, following, turn
from tests.invariants import install

HOUR = 3_600.0
JUMPS = (1.0, -1.0, 0.0)
MORE = 8
NOW = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"
CATCH_UP = """
UPDATE vpay.jobs
SET run_at = now(), due = lane IS NOT NULL
WHERE lease IS NULL AND parked_at IS NULL AND run_at > now() + interval '10 minutes'
"""
"""What an operator does about a database whose clock was set back: work that was scheduled by
the wrong time would wait for the right one to come there."""


def paying(street: Street, url: str, jump: Callable[[float], None], eventually: Eventually) -> None:
    """A jump to each of JUMPS, with payments behind each."""
    street.open(eventually)
    with street.customers() as charges:
        for hours in (*JUMPS, None):
            wanted = charges() + MORE
            eventually(partial(_reached, charges, wanted), within=60)
            if hours is not None:
                jump(hours)
    asked(url, CATCH_UP)
    street.drain(url, eventually)
    assert all(one.popen.poll() is None for one in street.fleet.processes)


def broken(street: Street, url: str) -> dict[str, list[str]]:
    """A signature of another hour is refused, and made again when the clock is right."""
    found = street.check(url)
    found["I6"] = [line for line in found.get("I6", []) if "did not verify" not in line]
    return {name: lines for name, lines in found.items() if lines}


def _reached(charges: Callable[[], int], wanted: int) -> bool:
    return charges() >= wanted


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
        assert asked(dsn, "SELECT count(*)::int FROM vpay.jobs WHERE crashes > 0") == [(0,)]
    finally:
        street.close()
