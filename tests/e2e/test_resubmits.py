"""A worker that is killed inside a resubmit, in a whole fleet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from tests.payment_kit import KEYS, events, force, make_charge, read_charge
from tests.payments.resubmit_kit import SUBMITS, classes, submits
from tests.rails.benches import MTN
from vpay_sandbox import journal
from vpay_sandbox.httpd import Hangup
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import AttemptClass, State
from vpay_tasks.store.db import Database


@pytest.fixture
def rail(tmp_path: Path) -> Iterator[StubRail]:
    with StubRail(journal=tmp_path / "rail.jsonl") as rail:
        yield rail


@pytest.mark.more(seconds=8)
@pytest.mark.parametrize("rail_has_it", [True, False])
def test_a_worker_killed_mid_resubmit_leaves_a_charge_that_others_settle_once(
    tmp_path: Path,
    fleet: Fleet,
    database: Database,
    rail: StubRail,
    board: Board,
    eventually: Eventually,
    rail_has_it: bool,
) -> None:
    fleet.config |= {
        "rails": {"mtn_momo": MTN.table(rail)},
        "keys": {"payer_ref": [key.get_secret_value() for key in KEYS.payer_ref]},
        "ladders": {"poll": [0.2]},
    }
    charge = make_charge(database, age=61)
    if not rail_has_it:
        rail.script(SUBMITS, Hangup())
    dispatcher = fleet.dispatcher()
    first = fleet.workers(threads=4)
    with rail.hold(SUBMITS) as held:
        held.wait(timeout_s=30)
        second = fleet.workers(threads=4)
        eventually(lambda: second.said("boot"))
        first.signal_group(signal.SIGKILL)
        eventually(lambda: dispatcher.said("reap"))
        resubmits = "SELECT 1 FROM vpay.jobs WHERE kind = 'resubmit_charge'"
        eventually(lambda: not board.ask(resubmits))  # the second has run it, and sent nothing
        assert submits(rail) == [charge.provider_reference_id]
    if not rail_has_it:
        eventually(lambda: read_charge(database, charge.id).not_found_streak >= 3)
        with database.transaction() as tx:
            force(tx, charge.id, not_found_for=60)
    eventually(lambda: read_charge(database, charge.id).state is State.SUCCEEDED)
    # The one that was killed has no answer, for ever.
    answers = [None] if rail_has_it else [None, AttemptClass.ACCEPTED]
    assert classes(database, charge) == answers
    assert set(submits(rail)) == {charge.provider_reference_id}
    assert len(submits(rail)) == len(answers)
    effects = journal.read(tmp_path / "rail.jsonl", "effect")
    assert [line["effect"] for line in effects] == ["prompt", "moved"]
    assert events(database) == [("payment_intent.succeeded", charge.payment_intent_id)]
