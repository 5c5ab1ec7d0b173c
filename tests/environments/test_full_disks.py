"""The disk is full: below the tables, below the log. Nothing answered is lost, and payments go
on by themselves once there is room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import PG, Eventually
from tests.disks import Disk, PlacedPostgres, mounted
from tests.environments.servers import UNSYNCED, asked, installed
from tests.environments.street import Street
from vpay_sandbox.postgres import Postgres
from vpay_tasks.errors import Storage

BEFORE = 8
AFTER = 12
LITTLE_LOG = {**UNSYNCED, "min_wal_size": "2MB", "max_wal_size": "4MB", "wal_recycle": "off"}
"""Kept short, so that it needs room all the time."""


@contextmanager
def served(server: Postgres) -> Iterator[Postgres]:
    with server:
        installed(server.url())
        yield server


def pays_through(
    server: Postgres, disk: Disk, street: Street, eventually: Eventually, symptom: str
) -> None:
    """Customers pay; the disk fills until the server says `symptom`; it is emptied again."""
    street.open(eventually)
    with street.customers() as charges:
        eventually(lambda: charges() >= BEFORE, within=60)
        disk.fill()
        try:
            eventually(lambda: symptom in server.log.read_text(errors="replace"), within=60)
            eventually(lambda: street.refused, within=60)
        finally:
            disk.empty()
        if server.pid is None:
            server.start()  # as its supervisor does
        known = charges()
        eventually(lambda: charges() >= known + AFTER, within=90)
    street.drain(server.url(), eventually)
    assert street.check(server.url()) == {}
    assert {type(error) for error in street.refused if not isinstance(error, Storage)} == set()
    assert asked(server.url(), "SELECT id FROM vpay.jobs WHERE parked_at IS NOT NULL") == []
    assert all(one.popen.poll() is None for one in street.fleet.processes)


@pytest.fixture
def disk() -> Iterator[Disk]:
    with mounted(140) as disk:
        yield disk


other = disk
"""For the log of a server whose tables are to have no room."""


@pytest.mark.more(seconds=40)
def test_a_full_disk_below_the_tables_loses_nothing_that_was_answered(
    tmp_path: Path, disk: Disk, other: Disk, broker_url: str, eventually: Eventually
) -> None:
    server = PlacedPostgres(
        tmp_path / "pg",
        disk.path / "data",
        settings=LITTLE_LOG,
        version=PG,
        initdb=["--wal-segsize=1", f"--waldir={other.path / 'log'}"],
    )
    with served(server):
        street = Street(tmp_path, server.url(), broker_url)
        try:
            pays_through(server, disk, street, eventually, "No space left on device")
        finally:
            street.close()


@pytest.mark.more(seconds=40)
def test_a_full_disk_below_the_log_loses_nothing_that_was_answered(
    tmp_path: Path, disk: Disk, broker_url: str, eventually: Eventually
) -> None:
    server = PlacedPostgres(
        tmp_path / "pg",
        None,
        settings=LITTLE_LOG,
        version=PG,
        initdb=["--wal-segsize=1", f"--waldir={disk.path / 'log'}"],
    )
    with served(server):
        street = Street(tmp_path, server.url(), broker_url)
        try:
            pays_through(server, disk, street, eventually, "PANIC")
        finally:
            street.close()
