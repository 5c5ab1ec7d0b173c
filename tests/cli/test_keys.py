"""`vpay-tasks keys rotate` as a person runs it, and killed half-way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from tests.cli.test_cli import ENTRY, Commands, run
from tests.conftest import Eventually
from tests.house import ROOT
from tests.payment_kit import opened, scalar
from tests.payments.test_rotation import LOST, NUMBERS, fill, stored
from vpay_tasks.payments.payer import PayerRing
from vpay_tasks.store import payers
from vpay_tasks.store.db import Database, connect

__all__ = ["run"]  # a fixture

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()
DONE = "0 rows use older keys: the old key may be removed."


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    with opened(dsn) as database:
        yield database


def with_keys(run: Commands, dsn: str, *keys: str) -> Commands:
    run.settings = f'[database]\nurl = "{dsn}"\n[keys]\npayer_ref = {list(keys)!r}\n'
    return run


def test_numbers_are_sealed_anew_and_the_old_key_may_go(
    run: Commands, dsn: str, database: Database
) -> None:
    fill(database, 5, key=Fernet(OLD))
    command = with_keys(run, dsn, NEW, OLD)
    dry = command("keys", "rotate", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert dry.stdout == "5 of 5 rows use older keys; nothing was changed.\n"
    done = command("keys", "rotate")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"5 rows were sealed anew with the newest key.\n{DONE}\n"
    again = command("keys", "rotate")
    assert again.stdout == f"0 rows were sealed anew with the newest key.\n{DONE}\n"
    alone = PayerRing([Fernet(NEW)])
    assert sorted(map(alone.open, stored(database))) == [NUMBERS.format(n) for n in range(5)]


def test_charges_whose_key_is_gone_are_named_and_nothing_secret_is(
    run: Commands, dsn: str, database: Database
) -> None:
    fill(database, 2, key=LOST)
    sealed = stored(database)
    command = with_keys(run, dsn, NEW, OLD)
    for words in (["keys", "rotate"], ["keys", "rotate", "--dry-run"]):
        done = command(*words)
        assert done.returncode == 78
        assert "no key opens the payers of 2 charges (ch_0001, ch_0002)" in done.stderr
        assert DONE not in done.stdout
        told = done.stdout + done.stderr
        for secret in (NEW, OLD, *sealed, NUMBERS.format(0)):
            assert secret not in told


def test_without_a_key_there_is_nothing_to_seal_with(run: Commands, dsn: str) -> None:
    done = with_keys(run, dsn)("keys", "rotate")
    assert (done.returncode, done.stderr) == (
        78,
        "error: keys.payer_ref: there is no key to seal with\n",
    )


def test_a_rotation_that_is_killed_half_way_is_finished_by_the_next(
    run: Commands, dsn: str, database: Database, tmp_path: Path, eventually: Eventually
) -> None:
    number = payers.PAGE + 10
    fill(database, number, key=Fernet(OLD))
    command = with_keys(run, dsn, NEW, OLD)
    (tmp_path / "vpay.toml").write_text(command.settings or "", "utf-8")
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with connect(dsn, application="tests") as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT id FROM vpay.charges ORDER BY id DESC LIMIT 1 FOR UPDATE")
        child = subprocess.Popen(
            [sys.executable, "-c", ENTRY.format(name="main"), "keys", "rotate"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
        )
        eventually(lambda: scalar(database, waiting) == 1)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        # Its server process notices by itself; the lock is held until it has.
        eventually(lambda: scalar(database, waiting) == 0)
        holder.execute("ROLLBACK")
    alone = PayerRing([Fernet(NEW)])
    assert sum(map(alone.is_newest, stored(database))) == payers.PAGE
    done = command("keys", "rotate")
    assert done.stdout == f"10 rows were sealed anew with the newest key.\n{DONE}\n"
    assert all(map(alone.is_newest, stored(database)))
