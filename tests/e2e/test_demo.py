"""`vpay-sandbox demo` as a stranger runs it: a process, its output, what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.house import ROOT
from tests.sandbox.processes import descendants, left, with_path

# The longest run takes about half a minute; one that hangs must not hang the suite.
LONGEST_S = 180.0

STATUS = "import sys; from vpay_tasks.cli import main; sys.exit(main())"


class Run:
    """One started demo; its temporary files lie in `folder`."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.out, self.err = folder / "out", folder / "err"
        self.place = folder / "tmp"
        self.place.mkdir(exist_ok=True)
        env = {**with_path(ROOT), "TMPDIR": str(self.place)}
        # Somebody's own database must not matter.
        env |= {"PGHOST": "nowhere.invalid", "PGPORT": "1", "VPAY_DATABASE_URL": "nonsense"}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vpay_sandbox.cli", *words],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def wait(self) -> int:
        return self.process.wait(LONGEST_S)

    def said(self) -> str:
        return self.err.read_text("utf-8")

    def printed(self) -> str:
        return self.out.read_text("utf-8")

    def left_behind(self) -> list[Path]:
        return [*self.place.iterdir()]

    def last_line(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads(self.printed().splitlines()[-1])
        return summary


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path, eventually: Eventually) -> Iterator[Start]:
    runs: list[Run] = []

    def start(*words: str) -> Run:
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(Run(folder, *words))
        return runs[-1]

    yield start
    for run in runs:
        below = descendants(run.process.pid)
        run.process.kill()
        run.process.wait()
        eventually(lambda below=below: not left(below))  # type: ignore[misc] # the loop's own


# Payments that no word of the rail ends, and the scenarios that are met.
UNRESOLVED, QUICK, ALL = 4, 45, 51


@pytest.mark.parametrize(
    ("words", "met", "ended"),
    [
        (["--quick"], QUICK, 60),
        pytest.param([], ALL, 60 - UNRESOLVED, marks=pytest.mark.more(seconds=45)),
    ],
    ids=["quick", "whole"],
)
def test_a_demo_kills_agrees_and_leaves_nothing(
    start: Start, words: list[str], met: int, ended: int
) -> None:
    run = start("demo", *words)
    assert run.wait() == 0, run.said() + run.printed()
    summary = run.last_line()
    times, exposure = summary.pop("settle_to_delivery_ms"), summary.pop("exposure")
    assert summary == {
        "payments": 60,
        "as_scripted": 60,
        "events": ended,
        "delivered": 2 * ended,
        "signatures_ok": 2 * ended,
        "lost": 0,
        "killed": {"workers": 1, "confirms": 1},
    }
    # What is lost, refused or unanswered is sent again; a busy machine may lose more.
    assert exposure >= 4
    assert 0 < times["p50"] <= times["p99"]
    assert "The database, the rail and the receiver agree." in run.printed()
    assert run.printed().count(" same ") == met
    assert max(map(len, run.printed().splitlines()[:-1])) <= 110
    assert "kill -9: the application, inside the submission of order 2" in run.said()
    assert "inside a question of order 1" in run.said()
    assert run.printed().count(" once") == 2
    assert f"{2 * ended}/{2 * ended} webhooks delivered" in run.said()
    assert run.left_behind() == []


SABOTAGES = [
    ("drop-one", 1, "the receiver accepted none of the 0 posts it got"),
    ("wrong-secret", 2, "stripe refuses the signature"),
    ("two-effects", 0, "the rail moved the money 2 times for the one reference"),
    ("remove-event", 3, "got it, and the database has no such event"),
]


@pytest.mark.parametrize(
    ("name", "lost", "words"),
    [
        SABOTAGES[0],
        *(pytest.param(*one, marks=pytest.mark.more(seconds=20)) for one in SABOTAGES[1:]),
    ],
)
def test_a_sabotage_is_found_and_named(start: Start, name: str, lost: int, words: str) -> None:
    # Four payments: two of them are the merchant's whose endpoint is broken.
    run = start("demo", f"--sabotage={name}", "--payments=4")
    assert run.wait() == 1, run.said()
    assert words in run.printed()
    assert run.last_line()["lost"] == lost
    [folder] = run.place.iterdir()
    assert f"Logs and journals: {folder}" in run.printed()
    assert (folder / "rail.jsonl").exists()
    assert not (folder / "postgres" / "data").exists()


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("webhooks delivered", SIGINT),
        pytest.param("starting Postgres", SIGINT, marks=pytest.mark.more(seconds=20)),
        pytest.param("starting Valkey", SIGINT, marks=pytest.mark.more(seconds=20)),
        pytest.param("creating the tables", SIGINT, marks=pytest.mark.more(seconds=20)),
        pytest.param("starting the dispatcher", SIGTERM, marks=pytest.mark.more(seconds=20)),
        pytest.param("kill -9: the app", SIGINT, marks=pytest.mark.more(seconds=25)),
    ],
)
def test_a_signal_at_any_moment_leaves_nothing_and_a_second_run_works(
    start: Start, eventually: Eventually, moment: str, number: Signals
) -> None:
    run = start("demo")
    eventually(lambda: moment in run.said(), within=60.0)
    below = eventually(lambda: descendants(run.process.pid))
    run.process.send_signal(number)
    assert run.wait() == 128 + number
    assert run.said().splitlines()[-1] == "stopped; nothing is left running"
    eventually(lambda: not left(below))
    assert run.left_behind() == []
    again = start("demo", "--payments=3")
    assert again.wait() == 0, again.said()
    assert again.last_line()["as_scripted"] == 3


def test_a_hard_kill_leaves_nothing(start: Start, eventually: Eventually) -> None:
    run = start("up")
    eventually(lambda: "Everything is still running" in run.said(), within=60.0)
    below = descendants(run.process.pid)
    # Postgres and its backends, Valkey, two stubs, dispatcher, web app, two groups with children.
    assert len(below) >= 11
    run.process.send_signal(SIGKILL)
    run.wait()
    eventually(lambda: not left(below))


def test_a_part_that_dies_early_is_named_with_its_log(start: Start, eventually: Eventually) -> None:
    run = start("demo")
    eventually(lambda: "webhooks delivered" in run.said(), within=60.0)
    [folder] = run.place.iterdir()
    for pid, _ in descendants(run.process.pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"vpay_sandbox.stub_rail" in words and b"-I" not in words:
            os.kill(pid, SIGKILL)
    assert run.wait() == 1
    assert f"error: rail ended by itself; the end of {folder}/rail.log" in run.said()


@pytest.mark.more(seconds=20)
def test_a_kept_demo_says_how_to_look_at_it(start: Start, eventually: Eventually) -> None:
    run = start("demo", "--keep", "--payments=2")
    eventually(lambda: "Everything is still running" in run.said(), within=90.0)
    [folder] = run.place.iterdir()
    assert run.last_line()["lost"] == 0
    assert f"export VPAY_CONFIG={folder}/vpay.toml" in run.said()
    status = subprocess.run(
        [sys.executable, "-c", STATUS, "status", "--json"],
        env={**with_path(ROOT), "VPAY_CONFIG": f"{folder}/vpay.toml"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len([one for one in json.loads(status.stdout)["workers"] if one["alive"]]) == 2
    run.process.send_signal(SIGINT)
    assert run.wait() == 0
    assert run.left_behind() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demo", "--sabotage=other"], "'drop-one', 'wrong-secret', 'two-effects', 'remove-event'"),
        (["demo", "--payments=0"], "no number from 1 to 1000"),
        (["demo", "--payments=many"], "no number from 1 to 1000"),
        ([], "required: command"),
    ],
)
def test_a_wrong_call_is_explained_and_starts_nothing(
    start: Start, words: list[str], told: str
) -> None:
    run = start(*words)
    assert run.wait() == 64
    assert told in run.said()
    assert run.left_behind() == []
