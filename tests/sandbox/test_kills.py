"""Calls that the rail holds: open for who kills, and in the journal until the caller is gone."""

from __future__ import annotations

import http.client
import json
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import Eventually
from vpay_sandbox import journal, plan
from vpay_sandbox.kills import open_calls
from vpay_sandbox.momo import SUBMIT_PATH
from vpay_sandbox.scenarios import Script
from vpay_sandbox.stub_rail import StubRail

from .client import JSON, Payer


@pytest.fixture
def payer(rail: StubRail) -> Payer:
    payer = Payer(rail.url)
    assert payer.token().status == 200
    return payer


def begin(
    payer: Payer, method: str, path: str, reference: str, body: str
) -> http.client.HTTPConnection:
    """A call whose answer nobody waits for: closing it is the caller's death."""
    where = urlsplit(payer.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=10)
    connection.request(method, path, body=body, headers={**payer.headers(reference), **JSON})
    return connection


def test_a_held_submission_is_open_until_its_caller_is_gone(
    payer: Payer, script: Script, tmp_path: Path, eventually: Eventually
) -> None:
    held, _ = reversed(plan.orders(script, 60, 1).crash)
    reference, path = str(uuid.uuid4()), tmp_path / "rail.jsonl"
    wish = {
        "amount": "10.00",
        "currency": "EUR",
        "externalId": reference,
        "payer": {"partyIdType": "MSISDN", "partyId": held.payer},
    }
    connection = begin(payer, "POST", SUBMIT_PATH, reference, json.dumps(wish))
    [call] = eventually(lambda: open_calls(journal.read(path), held, "submit"))
    assert call["reference"] == reference
    # The rail has it all the same.
    assert payer.ask(reference).json()["status"] == "SUCCESSFUL"
    connection.close()
    eventually(lambda: not open_calls(journal.read(path), held, "submit"))
    [answer] = [one for one in journal.read(path, "answer") if one["n"] == call["n"]]
    assert answer["status"] is None


def test_a_question_is_held_each_time_until_the_rail_decides(
    payer: Payer, script: Script, rail: StubRail, tmp_path: Path, eventually: Eventually
) -> None:
    asked, other = plan.orders(script, 60, 1).crash
    assert asked.payer is not None
    reference, path = payer.submit(asked.payer)[0], tmp_path / "rail.jsonl"
    for _ in range(2):
        connection = begin(payer, "GET", f"{SUBMIT_PATH}/{reference}", reference, "")
        [call] = eventually(lambda: open_calls(journal.read(path), asked, "status"))
        assert call["reference"] == reference
        assert open_calls(journal.read(path), other, "status") == []
        connection.close()
        eventually(lambda: not open_calls(journal.read(path), asked, "status"))
    rail.decide(reference, "SUCCESSFUL")
    assert payer.ask(reference).json()["status"] == "SUCCESSFUL"
