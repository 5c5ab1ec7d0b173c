"""The rail calls back where the script says so, and when somebody decides by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Eventually
from vpay_sandbox import journal
from vpay_sandbox.desk import Seen
from vpay_sandbox.scenarios import Script, coming_step
from vpay_sandbox.stub_rail import StubRail
from vpay_sandbox.stub_receiver import StubReceiver

from .client import Payer
from .test_stub_orange import Shop

PATH = "/provider/*"


@pytest.fixture
def callee() -> Iterator[StubReceiver]:
    """Whoever is called back; what it answers does not matter."""
    with StubReceiver() as receiver:
        yield receiver


@pytest.fixture
def payer(rail: StubRail, callee: StubReceiver) -> Payer:
    payer = Payer(rail.url)
    payer.token()
    payer.extra = {"X-Callback-Url": f"{callee.url}/provider/mtn_momo/callback"}
    return payer


def calls(callee: StubReceiver) -> list[Seen]:
    return callee.requests(PATH)


def body_of(seen: Seen) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(seen.request.body)
    return told


def test_a_rail_that_changes_its_mind_calls_back_again_and_again(
    payer: Payer, callee: StubReceiver, script: Script, tmp_path: Path, eventually: Eventually
) -> None:
    reference, _ = payer.submit(script.by_name["contradiction"].payer)
    other, _ = payer.submit(script.by_name["failed_expired"].payer)
    assert payer.ask(other).json()["status"] == "PENDING"
    assert payer.ask(reference).json()["status"] == "FAILED"
    eventually(lambda: len(calls(callee)) >= 2)
    assert {seen.request.method for seen in calls(callee)} == {"PUT"}
    assert {body_of(seen)["externalId"] for seen in calls(callee)} == {reference}
    told = eventually(lambda: journal.read(tmp_path / "rail.jsonl", "callback"))
    assert (told[0]["reference"], told[0]["status"]) == (reference, 404)


def test_what_somebody_decides_is_called_back_and_what_is_pending_is_not(
    rail: StubRail, payer: Payer, callee: StubReceiver, script: Script, eventually: Eventually
) -> None:
    never = script.by_name["never_answered"].payer
    pending, decided = payer.submit(never)[0], payer.submit(never)[0]
    rail.decide(pending, "PENDING")
    rail.decide(decided, "FAILED", reason="EXPIRED")
    eventually(lambda: calls(callee))
    assert {body_of(seen)["externalId"] for seen in calls(callee)} == {decided}


def test_a_redirect_rails_call_names_only_the_token(
    rail: StubRail, callee: StubReceiver, eventually: Eventually
) -> None:
    shop = Shop(rail)
    shop.token()
    order, got = shop.submit(17, notif_url=f"{callee.url}/provider/orange_money/callback")
    rail.decide(order, "SUCCESS")
    seen = eventually(lambda: calls(callee))[0]
    assert seen.request.method == "POST"
    assert body_of(seen)["notif_token"] == got.json()["notif_token"]
    assert order.encode() not in seen.request.body


def test_nobody_but_this_machine_is_called(
    rail: StubRail, payer: Payer, script: Script, tmp_path: Path, eventually: Eventually
) -> None:
    never = script.by_name["never_answered"].payer
    here = payer.extra
    payer.extra = {"X-Callback-Url": "http://pay.invalid/provider/mtn_momo/callback"}
    elsewhere, _ = payer.submit(never)
    payer.extra = here
    close, _ = payer.submit(never)
    # The first one's call would be the first one.
    rail.decide(elsewhere, "SUCCESSFUL")
    rail.decide(close, "SUCCESSFUL")
    path = tmp_path / "rail.jsonl"
    told = eventually(lambda: journal.read(path, "callback"))
    assert told[0]["reference"] == close


def test_a_late_success_is_called_back_when_it_comes(script: Script) -> None:
    step, in_s = coming_step(script.by_name["late_success"], 0, 2.0)
    assert (step.status, step.calls_back, in_s) == ("SUCCESSFUL", True, 20.0)
    step, in_s = coming_step(script.by_name["late_success"], 0, 30.0)
    assert (step.calls_back, in_s) == (True, 0.0)
    assert not coming_step(script.by_name["contradiction"], 0, 0.0)[0].calls_back
    assert coming_step(script.by_name["contradiction"], 1, 0.0)[0].calls_back
