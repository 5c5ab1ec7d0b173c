"""Real processes on settings of real money."""

from __future__ import annotations

import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet


@pytest.fixture
def live(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A fleet whose settings are livemode's."""
    monkeypatch.setenv("PAYER_KEY", "dmlkZW8ga2lsbGVkIHRoZSByYWRpbyBzdGFyIC4uLi4=")
    monkeypatch.setenv("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    endpoint = {
        "id": "main",
        "url": "https://hooks.example.com/acme",
        "secrets": ["${HOOK_SECRET}"],
    }
    del fleet.config["egress"]
    fleet.config |= {
        "livemode": {"enabled": True},
        "keys": {"payer_ref": ["${PAYER_KEY}"]},
        "merchants": [{"id": "acme", "endpoints": [endpoint]}],
    }
    return fleet


def test_a_fleet_boots_in_livemode_and_works(
    live: Fleet, board: Board, eventually: Eventually
) -> None:
    live.dispatcher()
    live.workers()
    job = board.enqueue("in_batches", {"n": 1}, batch=8)
    eventually(board.empty)
    assert board.runs("ended") == [job]


def test_a_dispatcher_does_not_boot_in_livemode_with_a_sandboxs_network(live: Fleet) -> None:
    live.config["egress"] = {"allow_private_targets": True}
    assert live.dispatcher().wait() == 78
