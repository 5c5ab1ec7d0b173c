"""How what goes wrong becomes an answer and a line."""

from __future__ import annotations

import logging

import pytest

from tests.web.conftest import Serve
from vpay_tasks.errors import Configuration, RailCredentials, VpayError
from vpay_tasks.web.frame import refusal

BRITTLE = {
    "factory": "tests.web.brittle_rail:from_settings",
    "base_url": "https://brittle.example",
    "api_key": "k",
}


def test_a_bug_is_told_by_its_place_and_never_in_its_own_words(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(rails={"brittle": BRITTLE}) as client:
        told = client.call_back("brittle", {"referenceId": "canary"})
    assert (told.status, told.body) == (500, {"error": "internal"})
    (line,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    fields = vars(line)["fields"]
    assert fields["alert"] is True
    assert "KeyError at" in fields["error"]
    assert "brittle_rail.py" in fields["error"]
    assert "canary" not in "".join(str(record.__dict__) for record in caplog.records)


@pytest.mark.parametrize("error", [Configuration("canary"), RailCredentials("canary")])
def test_an_answer_has_the_errors_status_and_name_and_not_its_text(error: VpayError) -> None:
    answer = refusal(error, "/route")
    assert answer.status_code == type(error).http
    assert b"canary" not in answer.body
