"""`vpay-tasks` and `vpay-dispatch` as a person or a supervisor runs them: real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT
from vpay_tasks import status
from vpay_tasks.errors import DeadReason
from vpay_tasks.store.db import connect

ENTRY = "import sys; from vpay_tasks.cli import {name}; sys.exit({name}())"


class Commands:
    """Runs the commands in an empty folder, with `settings` as ./vpay.toml if there are any."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: str | None = None

    def __call__(
        self, *words: str, entry: str = "main", database: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        if self.settings is not None:
            (self.folder / "vpay.toml").write_text(self.settings, "utf-8")
        env = {k: v for k, v in os.environ.items() if not k.startswith("VPAY_")}
        env["PYTHONPATH"] = str(ROOT)
        if database is not None:
            env["VPAY_DATABASE_URL"] = database
        return subprocess.run(
            [sys.executable, "-c", ENTRY.format(name=entry), *words],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def run(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_migrate_names_each_file_once_and_can_be_repeated(run: Commands, empty_dsn: str) -> None:
    first = run("migrate", database=empty_dsn)
    second = run("migrate", database=empty_dsn)
    lines = first.stdout.splitlines()
    assert (first.returncode, first.stderr) == (0, "")
    assert lines[0] == "applied 0001_create_jobs.sql"
    assert lines[-1] == f"The database is up to date: {len(lines) - 1} files applied."
    assert (second.returncode, second.stdout) == (
        0,
        "The database is up to date: nothing to apply.\n",
    )


def test_a_plan_names_what_would_be_applied_and_applies_nothing(
    run: Commands, empty_dsn: str
) -> None:
    first = run("migrate", "--plan", database=empty_dsn)
    lines = first.stdout.splitlines()
    assert (first.returncode, first.stderr) == (0, "")
    assert lines[0] == "would apply 0001_create_jobs.sql"
    assert lines[-1].startswith("Processes of the release before run on")
    assert run("migrate", "--plan", database=empty_dsn).stdout == first.stdout
    run("migrate", database=empty_dsn)
    after = run("migrate", "--plan", database=empty_dsn)
    assert after.stdout == "The database is up to date: nothing to apply.\n"


def test_settings_are_read_from_the_folder_it_runs_in(run: Commands, empty_dsn: str) -> None:
    run.settings = f'[database]\nurl = "{empty_dsn}"\n'
    assert run("migrate").returncode == 0


def test_status_before_migrate_says_what_to_run(run: Commands, empty_dsn: str) -> None:
    done = run("status", database=empty_dsn)
    assert done.returncode == 69
    assert "run `vpay-tasks migrate`" in done.stderr
    assert done.stdout == ""


def test_every_fault_of_the_settings_is_told_at_once(run: Commands) -> None:
    run.settings = '[database]\nurl = "mysql://x"\npol = 3\n[worker]\ngrace = -1\n[brokr]\n'
    for entry, words in (("main", ["status"]), ("main", ["migrate"]), ("dispatch", [])):
        done = run(*words, entry=entry)
        assert done.returncode == 78
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        for part in (
            "4 fault(s)",
            "database.url: must begin with postgresql://",
            "database.pol: unknown key, did you mean 'pool'?",
            "worker.grace: ",
            "brokr: unknown key, did you mean 'broker'?",
        ):
            assert part in done.stderr


def test_no_settings_at_all_is_told_with_the_way_out(run: Commands) -> None:
    done = run("status")
    assert (done.returncode, done.stderr) == (
        78,
        "error: no settings file vpay.toml: create it, or name one with VPAY_CONFIG\n",
    )


def test_words_that_are_no_text_are_refused_without_being_quoted(run: Commands) -> None:
    # As a terminal with another encoding sends them.
    for words in (["charges", "show", "\udce9"], ["inbox", "list", "--vendor", "s3cret\udcff"]):
        done = run(*words)
        place = len(words)
        assert (done.returncode, done.stdout, done.stderr) == (
            64,
            "",
            f"error: word {place} of the command is not UTF-8\n",
        )


def test_a_terminal_of_another_encoding_gets_its_answer(
    run: Commands, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    fill(dsn)
    done = run("status", database=dsn)
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


def test_postgres_out_of_reach_is_one_clear_line(run: Commands) -> None:
    for words in ("migrate", "status"):
        done = run(words, database="postgresql://someone:s3cret@127.0.0.1:1/x")
        assert done.returncode == 69
        assert done.stderr.startswith("error: Postgres is out of reach: ")
        assert done.stderr.count("\n") == 1
        assert "s3cret" not in done.stderr


@pytest.mark.parametrize("words", [[], ["nonsense"], ["status", "--nonsense"]])
def test_a_wrong_call_shows_the_usage(run: Commands, words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 64
    assert done.stderr.startswith("usage: vpay-tasks ")


def test_help_names_the_commands_and_the_exit_codes(run: Commands) -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in ("migrate", "status", "doctor", "VPAY_CONFIG", "69", "78"):
        assert word in done.stdout


def test_an_idle_system_has_a_calm_status(run: Commands, dsn: str) -> None:
    done = run("status", database=dsn)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        "Path to Postgres: fast (session locks tell the dead; work is notified)",
        "",
        "No jobs.",
        "",
        "No workers. Start one: dramatiq vpay_tasks.actors",
    ]
    seen = json.loads(run("status", "--json", database=dsn).stdout)
    assert list(seen) == [
        "at",
        "path",
        "attention",
        "counted_up_to",
        "jobs_estimate",
        "queues",
        "workers",
        "counters",
        "parked",
    ]
    assert (seen["queues"], seen["workers"], seen["counters"]) == ([], [], {})


def fill(dsn: str) -> None:
    with connect(dsn, application="tests") as connection:
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, payload, run_at, claims, starts)"
            " SELECT 'payments', 'poll_charge', '{}', now() - interval '3 min', 3, 1"
            " FROM generate_series(1, 2)"
        )
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, payload, parked_at, dead_reason, last_error)"
            " VALUES ('payments', 'mine', '{}', now() - interval '2 h', 'by_task', 'I gave up')"
        )
        connection.execute(
            # Its pulse is young for as long as the test may take.
            "INSERT INTO vpay.workers (id, host, pid, queues, threads, seen_at, stats)"
            " VALUES ('w', 'web-1', 4711, '{webhooks}', 8, now() + interval '1 h',"
            ' \'{"counters": {"posts": 5}}\')'
        )


def test_status_shows_what_is_there_and_what_to_do(run: Commands, dsn: str) -> None:
    fill(dsn)
    text = run("status", database=dsn).stdout
    for part in (
        "Queue     Kind         Ready  Scheduled  Claimed  Running  Parked  Lost in broker",
        "poll_charge      2          0        0        0       0               4",
        "web-1      webhooks  alive  4711        8",
        "by_task         The task gave up by itself and said why",
        "    I gave up",
        "No live worker serves the queue payments, where 2 jobs are due.",
        "1 job is parked and will not run until somebody acts.",
    ):
        assert part in text
    assert re.search(r"^posts +5$", text, re.MULTILINE)
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_status_as_json_says_the_same(run: Commands, dsn: str) -> None:
    fill(dsn)
    seen = json.loads(run("status", "--json", database=dsn).stdout)
    (queue,) = seen["queues"]
    (worker,) = seen["workers"]
    zero = dict.fromkeys(("ready", "scheduled", "claimed", "running", "parked"), 0)
    assert 180 <= queue["age_s"] < 600
    assert queue["kinds"] == [
        {"kind": "mine", **zero, "parked": 1, "broker_losses": 0},
        {"kind": "poll_charge", **zero, "ready": 2, "broker_losses": 4},
    ]
    assert (worker["host"], worker["pid"], worker["state"]) == ("web-1", 4711, "alive")
    assert seen["counters"] == {"posts": 5}
    assert [job["error"] for job in seen["parked"]["latest"]] == ["I gave up"]
    assert seen["parked"]["reasons"][0]["reason"] == "by_task"
    assert len(seen["attention"]) == 2


def test_the_statement_that_status_offers_runs_a_parked_job_again(dsn: str) -> None:
    fill(dsn)
    with connect(dsn, application="tests") as connection:
        (found,) = connection.execute("SELECT id FROM vpay.jobs WHERE parked_at IS NOT NULL")
        connection.execute(status.RUN_AGAIN.replace("…", str(found[0])).encode())
        (again,) = connection.execute(
            "SELECT parked_at, dead_reason, run_at <= now() FROM vpay.jobs WHERE id = %s", found
        )
    assert again == (None, None, True)


def test_there_is_advice_for_every_reason() -> None:
    assert len({status.advice(reason) for reason in DeadReason}) == len(DeadReason)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (60, "1.0 min"),
        (3_600, "1.0 h"),
        (90_000, "1.0 d"),
    ],
)
def test_durations_are_told_in_their_largest_unit(seconds: float | None, text: str) -> None:
    assert status.human(seconds) == text
