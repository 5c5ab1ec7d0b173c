"""The file of vectors is what the code does."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.webhooks.vectors import FILE, rendered
from vpay_tasks.webhooks import SignatureRefused, verify
from vpay_tasks.webhooks.sign import headers


def _read(part: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))[part]
    return found


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text("utf-8") == rendered(), "python -m tests.webhooks.vectors"


@pytest.mark.parametrize("case", _read("verify"), ids=lambda case: case["name"])
def test_our_verifier_comes_to_each_verdict(case: dict[str, Any]) -> None:
    body = base64.b64decode(case["body"])
    try:
        verify(body, case["header"], case["secrets"], tolerance=case["tolerance"], now=case["now"])
        verdict = "accepted"
    except SignatureRefused:
        verdict = "refused"
    assert verdict == case["verdict"]


@pytest.mark.parametrize("case", _read("sent"), ids=lambda case: case["name"])
def test_our_signer_sends_each_header(case: dict[str, Any]) -> None:
    t = int(case["headers"]["webhook-timestamp"])
    body = base64.b64decode(case["body"])
    assert headers(body, case["secrets"], t, event_id="evt_1", attempt=1) == case["headers"]


def test_there_are_vectors_of_each_kind() -> None:
    verdicts = [case["verdict"] for case in _read("verify")]
    assert verdicts.count("accepted") == 6
    assert verdicts.count("refused") > 55
