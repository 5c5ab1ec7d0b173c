"""The database's TimeZone and the processes' TZ are two people's choice, and change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import Eventually
from tests.environments.servers import asked
from tests.environments.street import Street
from tests.invariants import install

CLI = "import sys; from vpay_tasks.cli import main; sys.exit(main())"
KATHMANDU, APIA, ST_JOHNS = "Asia/Kathmandu", "Pacific/Apia", "America/St_Johns"
"""45 minutes off, half a day ahead, half an hour off and behind."""


def command(street: Street, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", CLI, *words, "--json"],
        env=street.fleet.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.more(seconds=25)
@pytest.mark.parametrize(
    ("databases", "processes"),
    [(KATHMANDU, APIA), (APIA, ST_JOHNS), (ST_JOHNS, KATHMANDU)],
)
def test_payments_in_odd_zones_are_as_everywhere(
    tmp_path: Path,
    dsn: str,
    broker_url: str,
    eventually: Eventually,
    databases: str,
    processes: str,
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    asked(dsn, f"ALTER DATABASE \"{name}\" SET timezone = '{databases}'")
    with psycopg.connect(dsn, autocommit=True) as connection:
        install(connection)
    assert asked(dsn, "SHOW timezone") == [(databases,)]
    street = Street(tmp_path, dsn, broker_url)
    street.fleet.extra |= {"TZ": processes}
    try:
        street.open(eventually)
        begun = time.time()
        with street.customers() as charges:
            eventually(lambda: charges() >= 8, within=60)
        street.drain(dsn, eventually)
        assert street.check(dsn) == {}
        # What a person and a program are told is UTC, with and without words for the zone.
        listed = command(street, "deliveries", "list")["deliveries"]
        for delivery in listed:
            assert 0 <= delivery["age"] <= time.time() - begun + 1
        shown = command(street, "deliveries", "show", listed[0]["id"])
        at = datetime.fromisoformat(shown["created_at"])
        assert at.utcoffset() == timedelta(0)
        assert begun - 1 <= at.timestamp() <= time.time() + 1
        since = datetime.fromtimestamp(begun, UTC).isoformat()
        assert len(command(street, "deliveries", "list", "--since", since)["deliveries"]) == len(
            listed
        )
        assert not [line for p in street.fleet.processes for line in p.lines() if _off(line)]
    finally:
        street.close()


def _off(line: dict[str, Any]) -> bool:
    """Whether a log line's instant is another than it was."""
    return abs(datetime.fromisoformat(line["at"]).timestamp() - time.time()) > 600
