"""Too few connections, and a Postgres that is far away: slower, never wrong, and nothing is
asked more often for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.conftest import PG, Eventually
from tests.e2e import proxy
from tests.environments.servers import UNSYNCED, asked, installed
from tests.environments.street import Street
from vpay_sandbox.postgres import Postgres
from vpay_tasks.errors import Storage

BEFORE = 8
AFTER = 12
DOCTOR = "import sys; from vpay_tasks.cli import main; sys.exit(main(['doctor', '--json']))"
FEW = 40
"""Connections: the two groups, the two dispatchers and the shop would use some more."""
TRIES_A_SECOND = 200
"""Of all processes together, while none is free: with pauses of a quarter of a second to some
seconds it is a few dozen. One loop without a pause alone would make thousands."""


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Postgres]:
    """A server with few connections that notes each that is refused."""
    settings = {**UNSYNCED, "max_connections": str(FEW), "log_connections": "on"}
    with Postgres(tmp_path / "few", settings=settings, version=PG) as server:
        installed(server.url())
        yield server


def doctor(street: Street) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", DOCTOR],
        env=street.fleet.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    return [f"{one['code']}: {one['what']}" for one in json.loads(done.stdout)["findings"]]


@pytest.mark.more(seconds=40)
def test_without_a_free_connection_everybody_waits_and_then_goes_on(
    tmp_path: Path, few: Postgres, broker_url: str, eventually: Eventually
) -> None:
    street = Street(tmp_path, few.url(), broker_url)
    try:
        street.open(eventually)
        with street.customers() as charges:
            eventually(lambda: charges() >= BEFORE, within=60)
            with ExitStack() as greedy:
                _take_all(greedy, few.url())
                # A restart of everything by its supervisor would meet the same.
                found = eventually(
                    lambda: [one for one in doctor(street) if "too many" in one or "sorry" in one],
                    within=60,
                )
                assert found[0].startswith("postgres_unreachable")
                eventually(lambda: street.refused, within=60)
            known = charges()
            eventually(lambda: charges() >= known + AFTER, within=90)
        street.drain(few.url(), eventually)
        assert street.check(few.url()) == {}
        assert all(isinstance(error, Storage) for error in street.refused)
        assert all(one.popen.poll() is None for one in street.fleet.processes)
        assert max(_refusals(few).values()) <= TRIES_A_SECOND
    finally:
        street.close()


def _take_all(greedy: ExitStack, url: str) -> None:
    """End everybody's sessions and take each place that comes free."""
    for _ in range(FEW * 4):
        try:
            mine = greedy.enter_context(psycopg.connect(url, application_name="greedy"))
        except psycopg.OperationalError:
            return
        mine.autocommit = True
        mine.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'vpay%' OR application_name LIKE 'tests%'"
        )
    raise AssertionError("there was always one more connection")


def _refusals(server: Postgres) -> Counter[str]:
    """How many connections were refused, by the second."""
    lines = server.log.read_text(errors="replace").splitlines()
    return Counter(line[:19] for line in lines if "too many clients" in line or "reserved" in line)


HALF = 0.25
"""Each way: half a second for a round trip."""


FAR = 4
"""Payments: each takes some ten seconds there."""


@pytest.mark.all
def test_on_a_postgres_half_a_second_away_leases_hold_and_nothing_is_done_twice(
    tmp_path: Path, broker_url: str, eventually: Eventually
) -> None:
    with Postgres(tmp_path / "far", settings=UNSYNCED, version=PG) as server:
        installed(server.url())
        with proxy.before(server.url()) as (line, through):
            street = Street(tmp_path, through, broker_url)
            # Production's own leases: the shorter ones of other tests are for other faults.
            street.set("worker", run_lease=30)
            street.set("dispatch", claim_lease=30)
            street.set("windows", submit_deadline=45, recovery=50, not_found=45, rail_request=20)
            try:
                street.open(eventually)
                line.delay_s = HALF
                with street.customers() as charges:
                    eventually(lambda: charges() >= FAR, within=120)
                street.drain(server.url(), eventually, within=120)
                assert street.check(server.url()) == {}
                # No amplification: a claim is a start is a settle, and nobody's lease was taken.
                ((claims, starts),) = asked(server.url(), COUNTS)
                assert claims == starts
                assert not [one for p in street.fleet.processes for one in p.said("reap")]
                posts = [one for one in street.lines("receiver") if one["kind"] == "delivery"]
                assert max(Counter(one["event"] for one in posts).values()) == 1
            finally:
                street.close()


COUNTS = """
SELECT count(*) FILTER (WHERE old_lease IS NULL AND lease IS NOT NULL AND NOT started),
    count(*) FILTER (WHERE started AND NOT old_started)
FROM audit.jobs
WHERE kind IN ('poll_charge', 'deliver_webhook')
"""
