"""The rail's wire format, over real HTTP."""

from __future__ import annotations

import http.client
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vpay_sandbox import journal
from vpay_sandbox.httpd import Hangup, Reply
from vpay_sandbox.momo import SUBMIT_PATH, TOKEN_PATH, Credentials
from vpay_sandbox.process import SandboxError, end
from vpay_sandbox.scenarios import Script
from vpay_sandbox.stub import StubProcess
from vpay_sandbox.stub_rail import StubRail

from .client import JSON, Payer, call

APPROVED = "46733123601"


@pytest.fixture
def payer(rail: StubRail) -> Payer:
    payer = Payer(rail.url)
    assert payer.token().status == 200
    return payer


def test_a_token_lasts_an_hour(rail: StubRail) -> None:
    answer = Payer(rail.url).token().json()
    assert answer["expires_in"] == 3600
    assert answer["access_token"]


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
GRANT = b'{"grant_type":"client_credentials"}'


@pytest.mark.parametrize(
    ("headers", "body", "status", "says"),
    [
        ({**JSON}, None, 411, b"Length Required"),
        ({**JSON}, b"", 411, b"Length Required"),
        (FORM, b"grant_type=client_credentials", 200, b"<html>"),
        ({**JSON, "Authorization": "Basic bm86bm8="}, GRANT, 401, b"login_failed"),
        ({**JSON, "Ocp-Apim-Subscription-Key": "other"}, GRANT, 401, b"subscription key"),
        ({**JSON}, b'{"grant_type":"password"}', 400, b"unsupported_grant_type"),
    ],
)
def test_a_token_that_is_asked_for_wrongly_is_refused(
    rail: StubRail, headers: dict[str, str], body: bytes | None, status: int, says: bytes
) -> None:
    payer = Payer(rail.url)
    got = call(rail.url, "POST", TOKEN_PATH, {**payer.key, **payer.basic, **headers}, body)
    assert got.status == status
    assert says in got.body


def test_an_accepted_payment_has_an_empty_answer_and_then_a_status(payer: Payer) -> None:
    reference, got = payer.submit(APPROVED)
    assert (got.status, got.body) == (202, b"")
    answer = payer.ask(reference).json()
    assert answer["status"] == "SUCCESSFUL"
    assert answer["financialTransactionId"]
    assert answer["externalId"] == reference
    assert (answer["amount"], answer["currency"]) == ("10.00", "EUR")
    assert answer["payer"] == {"partyIdType": "MSISDN", "partyId": APPROVED}
    assert payer.ask(reference).json() == answer


@pytest.mark.parametrize(
    ("headers", "wish", "status", "code"),
    [
        ({"Ocp-Apim-Subscription-Key": "other"}, {}, 401, None),
        ({"Authorization": "Bearer unknown"}, {}, 401, None),
        ({"Authorization": ""}, {}, 401, None),
        ({"X-Reference-Id": ""}, {}, 400, "INVALID_REFERENCE_ID"),
        ({"X-Reference-Id": "17"}, {}, 400, "INVALID_REFERENCE_ID"),
        ({"X-Target-Environment": ""}, {}, 500, "NOT_ALLOWED_TARGET_ENVIRONMENT"),
        ({}, {"currency": "XAF"}, 500, "INVALID_CURRENCY"),
        ({"X-Target-Environment": "mtncameroon"}, {"currency": "XAF"}, 202, None),
        ({}, {"amount": 10}, 400, "BAD_REQUEST"),
        ({}, {"payer": None}, 400, "BAD_REQUEST"),
    ],
)
def test_a_submission_that_is_wrong_is_refused_as_the_rail_does(
    payer: Payer,
    headers: dict[str, str],
    wish: dict[str, object],
    status: int,
    code: str | None,
) -> None:
    payer.extra = headers
    reference, got = payer.submit(APPROVED, changes=wish)
    assert got.status == status
    if code is not None:
        assert got.json()["code"] == code
    if status != 202:
        payer.extra = {}
        assert payer.ask(reference).status == 404


def test_a_submission_without_a_body_and_one_as_a_form_meet_the_gateway(payer: Payer) -> None:
    headers = payer.headers(str(uuid.uuid4()))
    assert call(payer.url, "POST", SUBMIT_PATH, headers).status == 411
    got = call(payer.url, "POST", SUBMIT_PATH, {**headers, **FORM}, b"amount=1")
    assert got.status == 200
    assert b"<html>" in got.body


def test_an_expired_token_is_refused_and_a_new_one_is_not(rail: StubRail, payer: Payer) -> None:
    assert rail.expire_tokens() == 1
    assert payer.submit(APPROVED)[1].status == 401
    payer.token()
    assert payer.submit(APPROVED)[1].status == 202


def test_a_token_of_a_short_life_is_refused_from_the_start() -> None:
    with StubRail(token_ttl_s=0.0) as rail:
        payer = Payer(rail.url)
        assert payer.token().json()["expires_in"] == 0
        assert payer.submit(APPROVED)[1].status == 401


def test_a_duplicate_reference_is_refused_and_moves_nothing(rail: StubRail, payer: Payer) -> None:
    reference, _ = payer.submit(APPROVED)
    got = payer.submit(APPROVED, reference)[1]
    assert got.status == 409
    assert got.json()["code"] == "RESOURCE_ALREADY_EXIST"


def test_an_unknown_reference_and_an_unknown_path_are_404(payer: Payer) -> None:
    got = payer.ask(str(uuid.uuid4()))
    assert got.status == 404
    assert got.json()["code"] == "RESOURCE_NOT_FOUND"
    assert call(payer.url, "GET", "/nowhere", payer.headers()).status == 404


EXPECTED = {
    "approved_first_poll": "202 409 S S S S S",
    "approved_third_poll": "202 409 P P S S S",
    "slow_answers": "202 409 P S S S S",
    "failed_not_enough_funds": "202 409 P F F F F",
    "failed_undocumented_reason": "202 409 P F F F F",
    "submit_500_but_recorded": "500 409 S S S S S",
    "submit_hung_up_but_recorded": "- 409 S S S S S",
    "submit_503_not_recorded": "503 202 S S S S S",
    "submit_401_once": "401 202 S S S S S",
    "duplicate_409": "409 409 S S S S S",
    "submit_declined_payer_not_found": "400 400 404 404 404 404 404",
    "status_503_for_a_while": "202 409 503 503 503 503 503",
    "status_401_once": "202 409 401 S S S S",
    "status_404_three_times": "202 409 404 404 404 S S",
    "submit_500_status_404_three_times": "500 409 404 404 404 S S",
    "late_success": "202 409 P P P P P",
    "never_answered": "202 409 P P P P P",
    "contradiction": "202 409 F S S S S",
    "wrong_amount": "202 409 S S S S S",
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_scenario_is_played_as_it_is_written(payer: Payer, script: Script, name: str) -> None:
    scenario, reference = script.by_name[name], str(uuid.uuid4())
    said = []
    for _ in range(2):
        try:
            said.append(str(payer.submit(scenario.payer, reference)[1].status))
        except (http.client.RemoteDisconnected, ConnectionError):
            said.append("-")
    for _ in range(5):
        got = payer.ask(reference)
        said.append(got.json()["status"][0] if got.status == 200 else str(got.status))
    assert " ".join(said) == EXPECTED[name]


def test_a_reason_is_said_as_it_is_scripted(payer: Payer, script: Script) -> None:
    reference, _ = payer.submit(script.by_name["failed_expired"].payer)
    payer.ask(reference)
    assert payer.ask(reference).json()["reason"] == "EXPIRED"
    reference, _ = payer.submit(script.by_name["failed_reason_as_table"].payer)
    assert payer.ask(reference).json()["reason"]["code"] == "NOT_ENOUGH_FUNDS"


def test_a_wrong_amount_is_said_for_the_right_reference(payer: Payer, script: Script) -> None:
    reference, _ = payer.submit(script.by_name["wrong_amount"].payer)
    answer = payer.ask(reference).json()
    assert (answer["amount"], answer["externalId"]) == ("1.23", reference)


@pytest.mark.parametrize(
    ("name", "recorded"),
    [("submit_unanswered_but_recorded", True), ("submit_never_received", False)],
)
def test_a_submission_that_is_never_answered_is_known_to_the_rail_or_not(
    rail: StubRail, payer: Payer, script: Script, tmp_path: Path, name: str, recorded: bool
) -> None:
    reference = str(uuid.uuid4())
    gone = threading.Event()

    def submit() -> None:
        with pytest.raises((http.client.HTTPException, OSError)):
            payer.submit(script.by_name[name].payer, reference)
        gone.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(submit)
        rail.wait_requests(SUBMIT_PATH, done=True)
        assert not gone.is_set()
        assert payer.ask(reference).status == (200 if recorded else 404)
        rail.stop()
    assert gone.is_set()
    answers = journal.read(tmp_path / "rail.jsonl", "answer")
    assert [one["status"] for one in answers if one["op"] == "submit"] == [None]


def test_the_journal_tells_requests_answers_and_effects_in_order(
    payer: Payer, tmp_path: Path
) -> None:
    reference, _ = payer.submit(APPROVED)
    payer.ask(reference)
    payer.ask(reference)
    entries = journal.read(tmp_path / "rail.jsonl")
    told = [(one["kind"], one.get("op") or one["effect"]) for one in entries]
    assert told == [
        ("request", "token"),
        ("answer", "token"),
        ("request", "submit"),
        ("effect", "prompt"),
        ("answer", "submit"),
        ("request", "status"),
        ("effect", "moved"),
        ("answer", "status"),
        ("request", "status"),
        ("answer", "status"),
    ]
    moved = entries[6]
    assert moved["reference"] == moved["external_id"] == reference
    assert (moved["amount"], moved["currency"], moved["payer"]) == ("10.00", "EUR", APPROVED)
    assert moved["scenario"] == "approved_first_poll"
    times = [one["t"] for one in entries]
    assert times == sorted(times)
    assert payer.bearer["Authorization"].split()[1] not in (tmp_path / "rail.jsonl").read_text()


def test_two_effects_happen_once_when_the_rail_is_sabotaged(tmp_path: Path) -> None:
    with StubRail(journal=tmp_path / "j", sabotage="two-effects") as rail:
        payer = Payer(rail.url)
        payer.token()
        for _ in range(2):
            payer.ask(payer.submit(APPROVED)[0])
    moved = [
        e["reference"] for e in journal.read(tmp_path / "j", "effect") if e["effect"] == "moved"
    ]
    assert len(moved) == 3
    assert len(set(moved)) == 2


def test_an_answer_is_held_until_the_test_says_so(rail: StubRail, payer: Payer) -> None:
    reference, _ = payer.submit(APPROVED)
    with ThreadPoolExecutor(2) as pool, rail.hold(f"*/{reference}", times=1) as hold:
        held = pool.submit(payer.ask, reference)
        hold.wait()
        assert payer.ask(reference).status == 200  # the second one is not caught
        assert not held.done()
        hold.release()
        assert held.result(10).status == 200


def test_a_predicate_holds_only_what_it_names(rail: StubRail, payer: Payer) -> None:
    with rail.hold(lambda request: request.method == "DELETE") as hold:
        assert payer.submit(APPROVED)[1].status == 202
        assert hold.reached == 0


def test_answers_are_scripted_one_after_the_other(rail: StubRail, payer: Payer) -> None:
    reference, _ = payer.submit(APPROVED)
    path = f"{SUBMIT_PATH}/{reference}"
    rail.script(path, Reply(429, b"slow down", {"Retry-After": "7"}))
    rail.script(path, Hangup())
    assert payer.ask(reference).status == 429
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        payer.ask(reference)
    assert payer.ask(reference).status == 200
    assert [seen.status for seen in rail.requests(path)] == [429, None, 200]


def test_a_scripted_answer_can_leave_the_rail_its_effect(rail: StubRail, payer: Payer) -> None:
    rail.script(SUBMIT_PATH, Reply(500), after=True)
    reference, got = payer.submit(APPROVED)
    assert got.status == 500
    assert payer.ask(reference).status == 200


def test_a_payment_is_decided_by_hand(rail: StubRail, payer: Payer, script: Script) -> None:
    reference, _ = payer.submit(script.by_name["never_answered"].payer)
    assert payer.ask(reference).json()["status"] == "PENDING"
    rail.decide(reference, "FAILED", reason="EXPIRED")
    assert payer.ask(reference).json()["reason"] == "EXPIRED"
    rail.decide(reference, "SUCCESSFUL")
    assert payer.ask(reference).json()["status"] == "SUCCESSFUL"


def test_a_connection_is_used_again_and_pieces_are_put_together(rail: StubRail) -> None:
    payer = Payer(rail.url)
    connection = http.client.HTTPConnection("127.0.0.1", rail.port, timeout=10)
    headers = {**payer.key, **payer.basic, **JSON}
    for body in (GRANT, iter([GRANT[:5], GRANT[5:]])):  # an iterator is sent in chunks
        connection.request("POST", TOKEN_PATH, body=body, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        assert b"access_token" in answer.read()
    connection.close()


def test_bytes_that_are_no_request_are_refused(rail: StubRail) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", rail.port, timeout=10)
    connection.connect()
    connection.sock.sendall(b"HELLO\r\n\r\n")
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 400 ")
    connection.close()


def test_as_a_program_it_is_controlled_over_http(tmp_path: Path) -> None:
    args: list[str | Path] = ["--port", "0", "--journal", tmp_path / "j"]
    args += ["--subscription-key", "k", "--api-user", "u", "--api-key", "p"]
    with StubProcess("vpay_sandbox.stub_rail", args, log=tmp_path / "log") as stub:
        payer, control = Payer(stub.url, Credentials("k", "u", "p")), stub.control
        payer.token()
        reference, _ = payer.submit(APPROVED)
        path = f"{SUBMIT_PATH}/{reference}"
        with ThreadPoolExecutor(1) as pool:
            hold = control.hold(path)
            held = pool.submit(payer.ask, reference)
            control.wait_held(hold)
            assert [one["done"] for one in control.requests(path)] == [False]
            assert control.release(hold) == 1
            assert held.result(10).status == 200
        control.script(path, status=503, body={"code": "X"}, headers={"Retry-After": "1"})
        assert payer.ask(reference).json() == {"code": "X"}
        control.wait(path, 2, done=True)
        first, second = (control.script(path, status=status, times=None) for status in (502, 504))
        assert [payer.ask(reference).status for _ in range(2)] == [502, 502]
        assert control.forget_scripts(first) == 2
        assert payer.ask(reference).status == 504
        assert control.forget_scripts() == 1, "those of the second"
        assert control.forget_scripts(second) == 0
        control.call("decide", {"reference": reference, "status": "PENDING"})
        assert payer.ask(reference).json()["status"] == "PENDING"
        assert control.call("expire_tokens") == {"expired": 1}
        assert payer.ask(reference).status == 401
        with pytest.raises(SandboxError, match="no such control: dance"):
            control.call("dance")
        assert stub.stop() == 0
    assert (tmp_path / "log").read_text() == ""
    assert len(journal.read(tmp_path / "j", "effect")) == 2


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_as_a_program_it_ends_cleanly_with_answers_open(
    tmp_path: Path, how: signal.Signals
) -> None:
    stub = StubProcess("vpay_sandbox.stub_rail", [], log=tmp_path / "log")
    payer = Payer(stub.url)
    stub.control.hold()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(payer.token)
        stub.control.wait(TOKEN_PATH)
        assert end(stub.process, how) == 0
        with pytest.raises((http.client.HTTPException, OSError)):
            held.result(10)
    assert (tmp_path / "log").read_text() == ""


def test_a_fault_in_the_scenario_file_is_said_and_ends_with_78(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[[push]]\nname = 'odd'\n")
    with pytest.raises(SandboxError, match="scenario odd: 'expect'"):
        StubProcess(
            "vpay_sandbox.stub_rail", ["--scenarios", tmp_path / "s.toml"], log=tmp_path / "log"
        )
