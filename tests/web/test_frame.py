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


def test_a_path_with_one_slash_too_many_is_no_path_and_redirects_nowhere(serve: Serve) -> None:
    with serve() as client:
        for path in ("/provider/mtn_momo/callback/", "/healthz/"):
            told = client.send(path, b"{}", Host="elsewhere.example")
            assert (told.status, told.body) == (404, {"error": "not_found"})
            assert "location" not in {name.lower() for name in told.headers}


def test_garbage_is_one_line_however_often_it_comes(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with serve() as client:
        for _ in range(5):
            assert b" 400 " in client.bytes_back(b"canary\r\n\r\n")
    lines = [record for record in caplog.records if record.name == "uvicorn.error"]
    assert [r.levelname for r in lines].count("WARNING") == 1
    assert "canary" not in str([record.__dict__ for record in lines])
