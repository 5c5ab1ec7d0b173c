"""Whoever is told to stop ends, also where each of its COMMITs waits for a standby for ever."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import STEERING
from tests.e2e.fleet import Fleet
from tests.environments.servers import asked, deserted, waiting
from vpay_tasks.core.task import Kind
from vpay_tasks.store import db, jobs

BEGAN = "SELECT job_id FROM public.runs WHERE what = 'began'"


@pytest.fixture
def steered(lone: str, tmp_path: Path, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, lone, broker_url)
    fleet.config["worker"]["grace"] = 0.5
    yield fleet
    fleet.end()


@pytest.mark.more(seconds=25)
def test_a_worker_that_waits_at_its_boot_ends_behind_its_grace(
    lone: str, steered: Fleet, eventually: Eventually
) -> None:
    with deserted(lone, eventually):
        workers = steered.workers(threads=2)
        eventually(lambda: waiting(lone, "vpay pulse"), within=60)
        workers.signal_group(signal.SIGTERM)
        assert workers.wait(60) == 1
        assert [line["abandoned"] for line in workers.said("grace_over")] == [0]


@pytest.mark.more(seconds=25)
def test_a_worker_whose_hand_back_waits_ends_without_it(
    lone: str, steered: Fleet, eventually: Eventually
) -> None:
    asked(lone, STEERING)
    with db.connect(lone, application="aside") as connection:
        made = jobs.enqueue(connection, Kind("held"), {"gate": "g"})
    steered.dispatcher()
    workers = steered.workers(threads=2, queues=["default"])
    eventually(lambda: asked(lone, BEGAN) == [(made.id,)], within=60)
    with deserted(lone, eventually):
        workers.signal(signal.SIGTERM)
        assert workers.wait(60) == 1
    # What it could not be seen to give back was given back all the same.
    eventually(lambda: asked(lone, "SELECT id FROM vpay.jobs WHERE lease IS NULL") != [])
