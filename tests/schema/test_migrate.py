"""Migrations on a real, empty database."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from vpay_tasks.errors import Configuration, Internal, Storage
from vpay_tasks.store import ledger, migrate
from vpay_tasks.store.db import connect
from vpay_tasks.store.migrate import Migration

ROOT = Path(__file__).parents[2]


def test_an_empty_database_gets_every_file_once_and_in_order(empty_dsn: str) -> None:
    with connect(empty_dsn, application="tests") as connection:
        applied = migrate.apply(connection)
        rows = connection.execute("SELECT number, name FROM vpay.migrations ORDER BY number")
        assert [(m.number, m.name) for m in applied] == rows.fetchall()
    assert applied
    assert [m.number for m in applied] == list(range(1, len(applied) + 1))


def test_migrating_twice_changes_nothing(empty_dsn: str) -> None:
    with connect(empty_dsn, application="tests") as connection:
        migrate.apply(connection)
        before = connection.execute("SELECT * FROM vpay.migrations ORDER BY number").fetchall()
        assert migrate.apply(connection) == []
        after = connection.execute("SELECT * FROM vpay.migrations ORDER BY number").fetchall()
    assert after == before


def test_two_that_migrate_at_once_apply_each_file_once(empty_dsn: str) -> None:
    applied: list[list[Migration]] = []

    def migrate_once() -> None:
        with connect(empty_dsn, application="tests") as connection:
            applied.append(migrate.apply(connection))

    threads = [threading.Thread(target=migrate_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.number for each in applied for one in each) == [
        one.number for one in migrate.available()
    ]


def test_an_edited_file_is_refused_by_name(dsn: str) -> None:
    with connect(dsn, application="tests") as connection:
        connection.execute("UPDATE vpay.migrations SET sha256 = repeat('0', 64) WHERE number = 1")
        with pytest.raises(Configuration, match=r"0001_\w+\.sql was edited"):
            migrate.apply(connection)


def test_a_missing_file_below_the_newest_is_refused(dsn: str) -> None:
    with connect(dsn, application="tests") as connection:
        connection.execute(
            "INSERT INTO vpay.migrations (number, name, sha256)"
            " VALUES (0, '0000_gone.sql', repeat('0', 64))"
        )
        with pytest.raises(Configuration, match=r"0000_gone\.sql was applied"):
            migrate.apply(connection)


def test_a_database_that_a_newer_release_migrated_is_current(dsn: str) -> None:
    with connect(dsn, application="tests") as connection:
        connection.execute(
            "INSERT INTO vpay.migrations (number, name, sha256)"
            " VALUES (9999, '9999_later.sql', repeat('0', 64))"
        )
        migrate.require_current(connection)
        assert migrate.apply(connection) == []


def test_a_database_behind_the_code_says_what_to_run(empty_dsn: str) -> None:
    with (
        connect(empty_dsn, application="tests") as connection,
        pytest.raises(Storage, match="run `vpay-tasks migrate`"),
    ):
        migrate.require_current(connection)


def test_a_file_that_fails_leaves_nothing_of_itself(empty_dsn: str) -> None:
    with connect(empty_dsn, application="tests") as connection:
        # The second table of the first file exists already, so the file fails half-way.
        connection.execute("CREATE SCHEMA vpay")
        connection.execute("CREATE TABLE vpay.lanes (mine integer)")
        with pytest.raises(Exception, match="already exists"):
            migrate.apply(connection)
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT 1 FROM vpay.jobs")
        assert migrate.pending(connection) == migrate.available()


def test_charges_that_succeeded_before_the_ledger_are_in_it(empty_dsn: str) -> None:
    with connect(empty_dsn, application="tests") as connection:
        while "ledger" not in (migrate.pending(connection) or migrate.available())[0].name:
            migrate._apply_next(connection)
        connection.execute(
            "INSERT INTO vpay.payment_intents"
            " (id, merchant_id, amount, currency, status, amount_received)"
            " SELECT 'pi_' || i, 'm_' || i % 2, 100 * i, 'EUR', 'succeeded', 100 * i"
            " FROM generate_series(1, 4) AS i"
        )
        connection.execute(
            "INSERT INTO vpay.charges (id, payment_intent_id, provider_code,"
            " provider_reference_id, state, amount, currency)"
            " SELECT 'ch_' || i, 'pi_' || i, 'mtn_momo', i,"
            " CASE WHEN i < 4 THEN 'succeeded' ELSE 'pending' END, 100 * i, 'EUR'"
            " FROM generate_series(1, 4) AS i"
        )
        migrate.apply(connection)
        posted = connection.execute(
            "SELECT charge_id, merchant_id, kind, amount FROM vpay.ledger_entries ORDER BY 1"
        ).fetchall()
        assert posted == [
            ("ch_1", "m_1", "capture", 100),
            ("ch_2", "m_0", "capture", 200),
            ("ch_3", "m_1", "capture", 300),
        ]
        assert [book.balances for book in ledger.books(connection)] == [True]


@pytest.mark.parametrize("name", ["0002_twin.sql", "0099_far_away.sql"])
def test_a_number_that_is_taken_or_leaves_a_gap_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shutil.copytree(Path(migrate.__file__).parents[1] / "schema", tmp_path / "schema")
    (tmp_path / "schema" / name).write_text("SELECT 1")
    monkeypatch.setattr("vpay_tasks.store.migrate.resources.files", lambda _: tmp_path)
    with pytest.raises(Internal, match=name):
        migrate.available()


def test_a_database_that_a_newer_release_has_contracted_is_refused(dsn: str) -> None:
    with connect(dsn, application="test") as connection:
        connection.execute(
            "INSERT INTO vpay.migrations (number, name, sha256)"
            " VALUES (9000, '9000_add_jobs_colour.sql', 'x')"
        )
        migrate.require_current(connection)
        connection.execute(
            "INSERT INTO vpay.migrations (number, name, sha256)"
            " VALUES (9001, '9001_contract_jobs_poked.sql', 'x')"
        )
        with pytest.raises(Configuration, match=r"9001_contract_jobs_poked\.sql.*upgrade"):
            migrate.require_current(connection)
        with pytest.raises(Configuration):
            migrate.apply(connection)


def test_whoever_owns_the_schema_migrates_it_without_a_right_in_the_whole_database(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path(migrate.__file__).parents[1] / "schema", tmp_path / "schema")
    newest = f"{len(migrate.available()) + 1:04d}_add_one.sql"
    (tmp_path / "schema" / newest).write_text("CREATE TABLE vpay.one (id integer)")
    monkeypatch.setattr("vpay_tasks.store.migrate.resources.files", lambda _: tmp_path)
    with connect(dsn, application="tests") as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = 'migrator'").fetchone():
            connection.execute("CREATE ROLE migrator")
        connection.execute("ALTER SCHEMA vpay OWNER TO migrator")
        connection.execute("ALTER TABLE vpay.migrations OWNER TO migrator")
        connection.execute("SET ROLE migrator")
        assert [migration.name for migration in migrate.apply(connection)] == [newest]


def test_the_linter_of_migrations_finds_nothing() -> None:
    files = [str(path) for path in sorted((ROOT / "schema").glob("0*.sql"))]
    squawk = Path(sys.executable).with_name("squawk")
    done = subprocess.run(
        [squawk, "--config", ROOT / ".squawk.toml", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"in {len(files)} files" in done.stdout + done.stderr
