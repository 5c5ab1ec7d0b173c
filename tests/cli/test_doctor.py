"""`vpay-tasks doctor` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from tests.cli.test_cli import Commands, fill, run
from tests.payment_kit import make_charge, opened
from vpay_tasks.config import Settings
from vpay_tasks.core.charge import State
from vpay_tasks.doctor import books, facts, findings
from vpay_tasks.store.db import connect

__all__ = ["run"]  # a fixture

NOWHERE = "127.0.0.1:1"
ROLES = Path(__file__).parents[2] / "schema" / "roles.sql"


def set_up(run: Commands, dsn: str, broker: str) -> None:
    run.settings = f'[database]\nurl = "{dsn}"\n[broker]\nurl = "{broker}"\n'


def codes(text: str) -> list[str]:
    return [finding["code"] for finding in json.loads(text)["findings"]]


def test_what_is_wrong_is_told_the_worst_first_with_a_remedy_each(
    run: Commands, dsn: str, broker_url: str
) -> None:
    set_up(run, dsn, broker_url)
    fill(dsn)
    done = run("doctor")
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert "the worst first" in lines[0]
    assert "page   No dispatcher is connected: no job is handed out." in lines
    assert "     → vpay-dispatch" in lines
    assert "page   No live worker serves payments, where 2 jobs are due." in lines
    assert "     → dramatiq vpay_tasks.actors --queues payments" in lines
    severities = [line.split()[0] for line in lines[2::3]]
    assert severities == sorted(severities, key=["page", "error", "warn", "info"].index)
    assert not [line for line in lines if line != line.rstrip()]


def test_json_has_stable_keys_and_the_same_findings(
    run: Commands, dsn: str, broker_url: str
) -> None:
    set_up(run, dsn, broker_url)
    fill(dsn)
    done = run("doctor", "--json")
    seen = json.loads(done.stdout)
    assert done.returncode == 1
    assert list(seen) == ["at", "findings"]
    assert {tuple(finding) for finding in seen["findings"]} == {
        ("code", "severity", "what", "remedy")
    }
    found = set(codes(done.stdout))
    assert {"dispatcher_missing", "queue_unserved", "parked_by_task"} <= found


def test_a_database_without_its_tables_needs_migrate(
    run: Commands, empty_dsn: str, broker_url: str
) -> None:
    set_up(run, empty_dsn, broker_url)
    done = run("doctor", "--json")
    (missing,) = (f for f in json.loads(done.stdout)["findings"] if "migrations" in f["code"])
    assert (done.returncode, missing["remedy"]) == (1, "vpay-tasks migrate")
    assert run("migrate").returncode == 0
    assert "migrations_missing" not in codes(run("doctor", "--json").stdout)


def test_servers_out_of_reach_are_findings_and_exit_69_without_a_secret(run: Commands) -> None:
    set_up(run, f"postgresql://a:s3cret@{NOWHERE}/x", f"redis://:s3cret@{NOWHERE}/0")
    done = run("doctor", "--json")
    assert (done.returncode, done.stderr) == (69, "")
    assert codes(done.stdout) == ["postgres_unreachable", "broker_unreachable"]
    assert "s3cret" not in done.stdout


def test_a_broker_out_of_reach_hides_no_other_finding(run: Commands, dsn: str) -> None:
    set_up(run, dsn, f"redis://{NOWHERE}/0")
    done = run("doctor", "--json")
    assert done.returncode == 69
    assert {"broker_unreachable", "dispatcher_missing"} <= set(codes(done.stdout))


def test_a_broker_that_evicts_is_a_finding_while_its_memory_is_bounded(
    run: Commands, dsn: str, broker_url: str
) -> None:
    set_up(run, dsn, broker_url)
    with redis.Redis.from_url(broker_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            unbounded = codes(run("doctor", "--json").stdout)
            client.config_set("maxmemory", "100mb")
            bounded = codes(run("doctor", "--json").stdout)
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")
    assert "broker_evicts" not in unbounded
    assert "broker_evicts" in bounded


def test_task_modules_that_cannot_be_loaded_are_a_finding(
    run: Commands, dsn: str, broker_url: str
) -> None:
    set_up(run, dsn, broker_url)
    run.settings = f"{run.settings}[worker]\nmodules = ['not_there']\n"
    found = codes(run("doctor", "--json").stdout)
    assert "tasks_unloadable" in found
    assert "kinds_unknown" not in found


def test_a_login_of_a_process_that_forgets_is_a_finding_whose_remedy_mends_it(
    run: Commands, dsn: str, broker_url: str
) -> None:
    set_up(run, dsn, broker_url)
    with connect(dsn, application="tests") as connection:
        connection.execute(ROLES.read_bytes())
        connection.execute("CREATE ROLE forgetful LOGIN IN ROLE vpay_worker")
        try:
            connection.execute("ALTER ROLE forgetful SET synchronous_commit = off")
            (found,) = (
                finding
                for finding in json.loads(run("doctor", "--json").stdout)["findings"]
                if finding["code"] == "synchronous_commit_off"
            )
            assert "for the login forgetful: a crash forgets payments" in found["what"]
            connection.execute(found["remedy"].encode())
            assert "synchronous_commit_off" not in codes(run("doctor", "--json").stdout)
        finally:
            connection.execute("DROP ROLE forgetful")


def test_books_that_do_not_balance_are_a_finding_whose_remedy_mends_it(
    run: Commands, dsn: str, broker_url: str
) -> None:
    set_up(run, dsn, broker_url)
    with opened(dsn) as database:
        make_charge(database, state=State.SUCCEEDED)
        (found,) = (
            finding
            for finding in json.loads(run("doctor", "--json").stdout)["findings"]
            if finding["code"] == "captures_missing"
        )
        assert "In EUR, in minor units, 1 charges brought in 1000, 0 captures" in found["what"]
        with database.connection() as connection:
            connection.execute(found["remedy"].encode())
    assert "captures_missing" not in codes(run("doctor", "--json").stdout)


def test_books_that_are_held_too_long_to_be_read_hide_no_other_finding(
    dsn: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "LOOK_S", 0.05)
    with connect(dsn, application="tests") as holder:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE vpay.ledger_entries")
        found = [finding.code for finding in findings.find(facts.gather(settings))]
        holder.execute("ROLLBACK")
    assert "books_unread" in found
    assert "dispatcher_missing" in found


@pytest.mark.parametrize("statement", [books.SUMS, books.DIFFERENCES, books.POST_MISSING])
def test_what_the_doctor_offers_about_the_books_can_be_typed(dsn: str, statement: str) -> None:
    with connect(dsn, application="tests") as connection:
        connection.execute(statement.encode())
