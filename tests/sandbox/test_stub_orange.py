"""The redirect rail's wire format and its page, over real HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from vpay_sandbox import journal
from vpay_sandbox.httpd import Hangup
from vpay_sandbox.orange import STATUS_PATH, SUBMIT_PATH, TOKEN_PATH
from vpay_sandbox.scenarios import Script
from vpay_sandbox.stub_rail import StubRail

from .client import JSON, Got, call

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
GRANT = b"grant_type=client_credentials"


class Shop:
    """One merchant against the rail."""

    def __init__(self, rail: StubRail) -> None:
        self.url = rail.url
        self.keys = rail.orange_credentials
        pair = f"{self.keys.client_id}:{self.keys.client_secret}"
        self.basic = {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
        self.bearer: dict[str, str] = {}

    def token(self) -> Got:
        got = call(self.url, "POST", TOKEN_PATH, {**self.basic, **FORM}, GRANT)
        self.bearer = {"Authorization": f"Bearer {got.json()['access_token']}"}
        return got

    def submit(self, amount: object, order: str | None = None, **changes: Any) -> tuple[str, Got]:
        order = order or str(uuid.uuid4())
        wish = {
            "merchant_key": self.keys.merchant_key,
            "currency": "XAF",
            "order_id": order,
            "amount": amount,
            "return_url": "https://shop.example/back",
            "cancel_url": "https://shop.example/cancel",
            "notif_url": "https://pay.example/callback",
            "lang": "fr",
            **changes,
        }
        body = json.dumps(wish).encode()
        return order, call(self.url, "POST", SUBMIT_PATH, {**self.bearer, **JSON}, body)

    def ask(self, order: str, amount: int, pay_token: str) -> Got:
        wish = {"order_id": order, "amount": amount, "pay_token": pay_token}
        headers = {**self.bearer, **JSON}
        return call(self.url, "POST", STATUS_PATH, headers, json.dumps(wish).encode())

    def opens(self, page: str, answer: str = "") -> Got:
        path = urlsplit(page).path
        return call(self.url, "GET", f"{path}?answer={answer}" if answer else path, {})


@pytest.fixture
def shop(rail: StubRail) -> Shop:
    shop = Shop(rail)
    assert shop.token().status == 200
    return shop


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({**JSON}, b'{"grant_type":"client_credentials"}', 400),
        (FORM, b"grant_type=password", 400),
        (FORM, b"", 400),
        ({**FORM, "Authorization": "Basic bm86bm8="}, GRANT, 401),
    ],
)
def test_a_token_that_is_asked_for_wrongly_is_refused(
    rail: StubRail, headers: dict[str, str], body: bytes, status: int
) -> None:
    got = call(rail.url, "POST", TOKEN_PATH, {**Shop(rail).basic, **headers}, body)
    assert got.status == status


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"merchant_key": "other"}, 403),
        ({"amount": "1000"}, 400),
        ({"amount": 10.5}, 400),
        ({"amount": True}, 400),
        ({"amount": 0}, 400),
        ({"order_id": "17"}, 400),
        ({"return_url": ""}, 400),
        ({"cancel_url": None}, 400),
        ({"notif_url": None}, 400),
        ({"lang": None}, 400),
        ({"currency": None}, 400),
    ],
)
def test_an_order_that_is_wrong_is_refused(
    shop: Shop, changes: dict[str, Any], status: int
) -> None:
    wish = {"amount": 1000, **changes}
    assert shop.submit(wish.pop("amount"), **wish)[1].status == status


def test_an_order_is_good_once_and_with_a_good_token_only(rail: StubRail, shop: Shop) -> None:
    order, got = shop.submit(1000)
    assert got.status == 201
    assert set(got.json()) == {"status", "message", "pay_token", "payment_url", "notif_token"}
    assert shop.submit(1000, order)[1].status == 400
    assert rail.expire_tokens() == 1
    assert shop.submit(1000)[1].status == 401
    assert call(rail.url, "GET", SUBMIT_PATH, {}).status == 404


def test_a_question_must_name_order_amount_and_token(shop: Shop) -> None:
    order, got = shop.submit(1000)
    token = got.json()["pay_token"]
    assert shop.ask(order, 1000, token).json() == {"status": "INITIATED", "order_id": order}
    assert shop.ask(order, 1001, token).status == 404
    assert shop.ask(order, 1000, "other").status == 404
    assert shop.ask(str(uuid.uuid4()), 1000, token).status == 404


@pytest.mark.parametrize(
    ("answer", "word", "back"),
    [
        ("approve", "SUCCESS", "https://shop.example/back"),
        ("decline", "FAILED", "https://shop.example/cancel"),
    ],
)
def test_the_payer_opens_the_page_and_answers_once(
    rail: StubRail, shop: Shop, answer: str, word: str, back: str
) -> None:
    order, got = shop.submit(1000)
    token, page = got.json()["pay_token"], got.json()["payment_url"]
    assert b"1000 XAF" in shop.opens(page).body
    assert shop.ask(order, 1000, token).json()["status"] == "PENDING"
    assert shop.opens(page, answer).status == 302
    shop.opens(page)
    shop.opens(page, "decline" if answer == "approve" else "approve")
    assert shop.ask(order, 1000, token).json()["status"] == word
    first = rail.requests(f"*/{token}")[0].request
    assert first.method == "GET"
    assert shop.opens("/orange/payment/unknown").status == 404
    connection = http.client.HTTPConnection("127.0.0.1", rail.port, timeout=10)
    connection.request("GET", f"{urlsplit(page).path}?answer={answer}")
    assert connection.getresponse().headers["Location"] == back
    connection.close()


EXPECTED = {
    "redirect_approved": "201 INITIATED PENDING SUCCESS SUCCESS",
    "redirect_approved_at_once": "201 SUCCESS SUCCESS SUCCESS SUCCESS",
    "redirect_expired": "201 INITIATED PENDING EXPIRED EXPIRED",
    "redirect_failed": "201 PENDING FAILED FAILED FAILED",
    "redirect_never_opened": "201 INITIATED INITIATED INITIATED INITIATED",
    "redirect_slow_answers": "201 INITIATED SUCCESS SUCCESS SUCCESS",
    "redirect_status_503_for_a_while": "201 503 503 503 503",
    "redirect_late_success": "201 INITIATED INITIATED INITIATED INITIATED",
    "redirect_contradiction": "201 EXPIRED SUCCESS SUCCESS SUCCESS",
    "redirect_wrong_amount": "201 SUCCESS SUCCESS SUCCESS SUCCESS",
    "redirect_submit_500_but_recorded": "500",
    "redirect_submit_401_once": "401",
    "redirect_submit_never_received": "-",
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_scenario_is_played_as_it_is_written(shop: Shop, script: Script, name: str) -> None:
    amount = script.by_name[name].amount
    said = []
    try:
        order, got = shop.submit(amount)
        said.append(str(got.status))
    except (http.client.RemoteDisconnected, ConnectionError):
        said.append("-")
    if said == ["201"]:
        for _ in range(4):
            told = shop.ask(order, amount, got.json()["pay_token"])
            said.append(told.json()["status"] if told.status == 201 else str(told.status))
    assert " ".join(said) == EXPECTED[name]


def test_the_journal_has_the_form_of_the_other_rails_and_no_token(
    rail: StubRail, shop: Shop, tmp_path: Path
) -> None:
    order, got = shop.submit(1000)
    token, page = got.json()["pay_token"], got.json()["payment_url"]
    shop.opens(page, "approve")
    shop.ask(order, 1000, token)
    entries = journal.read(tmp_path / "rail.jsonl")
    told = [(one["kind"], one.get("op") or one["effect"]) for one in entries]
    assert told == [
        ("request", "token"),
        ("answer", "token"),
        ("request", "submit"),
        ("effect", "prompt"),
        ("answer", "submit"),
        ("request", "page"),
        ("answer", "page"),
        ("request", "status"),
        ("effect", "moved"),
        ("answer", "status"),
    ]
    moved = entries[8]
    assert moved["reference"] == moved["external_id"] == order
    assert (moved["amount"], moved["moved_amount"], moved["currency"]) == ("1000", "1000", "XAF")
    assert moved["scenario"] == "by_hand"
    text = (tmp_path / "rail.jsonl").read_text()
    for secret in (token, got.json()["notif_token"], shop.keys.merchant_key):
        assert secret not in text


def test_a_payment_is_decided_by_hand_and_answers_are_scripted(rail: StubRail, shop: Shop) -> None:
    order, got = shop.submit(3613)
    rail.decide(order, "EXPIRED")
    token = got.json()["pay_token"]
    assert shop.ask(order, 3613, token).json()["status"] == "EXPIRED"
    with pytest.raises(KeyError):
        rail.decide(str(uuid.uuid4()), "EXPIRED")
    rail.script(STATUS_PATH, Hangup())
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        shop.ask(order, 3613, token)
