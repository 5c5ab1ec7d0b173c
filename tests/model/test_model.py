"""The whole installation as a model. These programs are the same each time, so that a red run is
about the change that it judges; `make sim` draws others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tests.model.lab import drive, lab
from tests.model.machine import Installation
from tests.model.sim import CHUNK, RULES
from vpay_tasks.store import events, jobs, leases, settles, sql


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Installation]]:
    with lab(tmp_path_factory.mktemp("model")) as machine:
        yield machine


SEED = 7
"""Once more by hand: make sim ARGS="--steps 1 --seed 7"."""


def test_no_program_breaks_a_promise(machine: type[Installation]) -> None:
    drive(machine, SEED, examples=CHUNK, steps=RULES, shrinks=False)
    assert machine.record["jobs_finished"] > 0


@pytest.mark.more(seconds=60)
def test_what_is_rare_breaks_no_promise(machine: type[Installation]) -> None:
    for number in range(1, 4):
        drive(machine, SEED + number, examples=CHUNK, steps=RULES, shrinks=False)
    for path in ("blocked on a lock", "duplicates_refused", "jobs_parked"):
        assert machine.record[path] > 0


BY_TOKEN = "jobs.id = given.id AND jobs.lease = given.lease"


@pytest.mark.more(seconds=30)
@pytest.mark.parametrize(
    ("statements", "name", "guard", "without"),
    [
        (settles.SQL, "settle", BY_TOKEN, "jobs.id = given.id"),
        (jobs.SQL, "start", BY_TOKEN, "jobs.id = given.id"),
        (jobs.SQL, "start", "lease = %(run)s::uuid,", "lease = jobs.lease,"),
        (jobs.SQL, "release", BY_TOKEN, "jobs.id = given.id"),
        (leases.SQL, "reap_gone", "WHERE NOT EXISTS (", "WHERE true OR NOT EXISTS ("),
        (leases.SQL, "reap_expired", "lease_until < now()", "started_at IS NULL"),
        (events.SQL, "flip", "FROM flipped\n    JOIN", "FROM vpay.events AS flipped\n    JOIN"),
    ],
    ids=["settle", "start", "swap", "release", "reap", "claims", "fan-out"],
)
def test_a_guard_that_is_taken_out_is_missed(
    machine: type[Installation],
    monkeypatch: pytest.MonkeyPatch,
    statements: sql.Statements,
    name: str,
    guard: str,
    without: str,
) -> None:
    text = statements[name].text
    assert guard in text
    broken = dataclasses.replace(statements[name], text=text.replace(guard, without))
    monkeypatch.setitem(statements, name, broken)
    with pytest.raises(AssertionError, match=r"I[1-9]"):
        drive(machine, 1, examples=150, steps=40, shrinks=False)
