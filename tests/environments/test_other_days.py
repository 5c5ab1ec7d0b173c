"""The hour that comes twice, the hour that never comes, a day that most years don't have: the
whole system lives through them, on a Postgres and with processes that take today for that day."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conftest import PG, Eventually
from tests.environments.servers import UNSYNCED, asked, installed
from tests.environments.street import Street
from tests.faketime import SLEEPING, OddPostgres, shifted
from vpay_tasks.transport import Pooled

BERLIN, APIA = "Europe/Berlin", "Pacific/Apia"
TURNS = {
    "the hour that comes twice": (datetime(2026, 10, 25, 1, tzinfo=UTC), BERLIN),
    "the hour that never comes": (datetime(2027, 3, 28, 1, tzinfo=UTC), BERLIN),
    "into a leap day": (datetime(2028, 2, 28, 11, tzinfo=UTC), APIA),
}
"""When the clocks of a zone turn, or its day does."""
AHEAD_S = 75.0
"""From the server's start to the turn: for the processes to be there and to take payments."""
NOW = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"
LOCAL = "SELECT to_char(created_at, 'YYYY-MM-DD HH24 TZH') FROM vpay.charges"


@pytest.mark.more(seconds=110)
@pytest.mark.parametrize("turn", list(TURNS))
def test_payments_across_a_turn_are_as_on_every_day(
    tmp_path: Path, broker_url: str, eventually: Eventually, turn: str
) -> None:
    at, zone = TURNS[turn]
    hours = (at.timestamp() - AHEAD_S - time.time()) / 3_600
    settings = {**UNSYNCED, "timezone": zone}
    with OddPostgres(tmp_path / "pg", hours, settings=settings, version=PG) as server:
        # As behind a pooler: see tests/payments/test_clocks.py.
        url = Pooled(server.url())
        installed(url)
        street = Street(tmp_path, server.url(), broker_url)
        street.set("database", pulse="lease")
        street.move_to({**shifted(hours), "PYTHONPATH": str(SLEEPING), "TZ": zone})
        try:
            street.open(eventually)
            # Unhurried: what piles up until the turn has to be worked off behind it.
            with street.customers(pause=2.0) as charges:
                eventually(charges)
                assert asked(url, NOW)[0][0] < at.timestamp(), "the machine was too slow"
                eventually(lambda: asked(url, NOW)[0][0] > at.timestamp(), within=90)
                known = charges()
                eventually(lambda: charges() >= known + 12, within=60)
            street.drain(url, eventually, within=120)
            assert street.check(url) == {}
            assert any(line["kind"] == "delivery" for line in street.lines("receiver"))
            # The local clock told another hour or day behind it, and no charge is older for it.
            assert len({row[0] for row in asked(url, LOCAL)}) > 1
        finally:
            street.close()
