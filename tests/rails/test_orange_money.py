"""Orange's wire: what is sent, what answers mean, and its table of settings."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.rails.benches import ORANGE
from vpay_sandbox.httpd import Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import WindowsTable
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.errors import Rail, RailCredentials
from vpay_tasks.rails import build
from vpay_tasks.rails.port import (
    Accepted,
    Failed,
    Inquiry,
    Order,
    Pending,
    RailPort,
    StatusAnswer,
    Succeeded,
    Unknown,
)


def in_time() -> float:
    return time.monotonic() + 20


def submit(rail: RailPort, wish: Order) -> Accepted:
    answer = rail.submit(wish, deadline=in_time())
    assert isinstance(answer, Accepted)
    return answer


def ask(rail: RailPort, inquiry: Inquiry) -> StatusAnswer:
    return rail.query_status(inquiry, deadline=in_time())


def test_a_payment_from_page_to_paid(stub: StubRail) -> None:
    rail, wish = ORANGE.rail(stub), ORANGE.order(amount=3601)
    accepted = submit(rail, wish)
    assert set(accepted.key_material) == {"pay_token", "callback_key"}
    assert accepted.redirect_url == (
        f"{stub.url}/orange/payment/{accepted.key_material['pay_token']}"
    )
    inquiry = ORANGE.inquiry(wish, accepted)
    assert [ask(rail, inquiry) for _ in range(2)] == [Pending(), Pending()]
    paid = ask(rail, inquiry)
    assert isinstance(paid, Succeeded)
    assert paid.txn_id is not None
    assert paid.txn_id.startswith("MP")


def test_what_is_sent_is_what_the_documents_ask_for(stub: StubRail) -> None:
    rail, wish = ORANGE.rail(stub), ORANGE.order(amount=1050, return_url="https://s.example/b?o=7")
    accepted = submit(rail, wish)
    ask(rail, ORANGE.inquiry(wish, accepted))
    (token,), (order,), (question,) = (
        stub.requests(path) for path in (ORANGE.tokens or "", ORANGE.submits, ORANGE.statuses)
    )
    assert token.request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert token.request.body == b"grant_type=client_credentials"
    assert json.loads(order.request.body) == {
        "merchant_key": stub.orange_credentials.merchant_key,
        "currency": "XAF",
        "order_id": wish.reference,
        "amount": 1050,
        "return_url": "https://s.example/b?o=7",
        "cancel_url": "https://s.example/b?o=7",
        "notif_url": "https://pay.example/callback",
        "lang": "fr",
    }
    assert json.loads(question.request.body) == {
        "order_id": wish.reference,
        "amount": 1050,
        "pay_token": accepted.key_material["pay_token"],
    }


def test_a_whole_amount_of_a_currency_with_cents_is_sent_whole(stub: StubRail) -> None:
    submit(ORANGE.rail(stub), ORANGE.order(amount=1000, currency="EUR"))
    assert json.loads(stub.requests(ORANGE.submits)[0].request.body)["amount"] == 10


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("INITIATED", Pending()),
        ("PENDING", Pending()),
        ("SUCCESS", Succeeded("MP1")),
        ("EXPIRED", Failed(FailureCode.PAYER_TIMEOUT, "EXPIRED")),
        ("FAILED", Failed(FailureCode.PROVIDER_ERROR, "FAILED")),
    ],
)
@pytest.mark.parametrize("status", [200, 201])
def test_the_five_words(stub: StubRail, word: str, meaning: StatusAnswer, status: int) -> None:
    inquiry = ORANGE.inquiry(ORANGE.order())
    stub.script(ORANGE.statuses, Reply(status, ORANGE.said(inquiry, word).body))
    assert ask(ORANGE.rail(stub), inquiry) == meaning


def test_an_answer_need_not_name_amount_and_currency_which_were_in_the_question(
    stub: StubRail,
) -> None:
    inquiry = ORANGE.inquiry(ORANGE.order())
    told = {"status": "SUCCESS", "order_id": inquiry.reference, "txnid": "MP7"}
    stub.script(ORANGE.statuses, Reply(201, json.dumps(told).encode()))
    assert ask(ORANGE.rail(stub), inquiry) == Succeeded("MP7")


def test_without_its_token_a_payment_is_not_asked_for(stub: StubRail) -> None:
    wish = ORANGE.order()
    with pytest.raises(Rail, match="no pay_token"):
        ask(ORANGE.rail(stub), Inquiry(wish.reference, wish.amount, wish.currency))
    assert stub.requests() == []


GOOD = {"pay_token": "p", "payment_url": "http://127.0.0.1/p", "notif_token": "n"}


@pytest.mark.parametrize(
    "change",
    [
        {"pay_token": None},
        {"pay_token": ""},
        {"pay_token": "a b"},
        {"pay_token": "a\x00"},
        {"pay_token": "p" * 513},
        {"pay_token": 7},
        {"payment_url": None},
        {"payment_url": "javascript:alert(1)"},
        {"payment_url": "https://a b"},
        {"payment_url": "https://" + "a" * 2001},
        {"payment_url": ["https://a"]},
    ],
)
def test_an_order_that_nobody_could_pay_or_ask_for_is_not_accepted(
    stub: StubRail, change: dict[str, Any]
) -> None:
    rail = ORANGE.rail(stub)
    for told, kind in (({**GOOD, **change}, Unknown), (GOOD, Accepted)):
        stub.script(ORANGE.submits, Reply(201, json.dumps(told).encode()))
        assert isinstance(rail.submit(ORANGE.order(), deadline=in_time()), kind)


def test_an_order_without_a_notif_token_can_be_paid_all_the_same(stub: StubRail) -> None:
    told = json.dumps({**GOOD, "notif_token": None}).encode()
    stub.script(ORANGE.submits, Reply(200, told))
    assert submit(ORANGE.rail(stub), ORANGE.order()).key_material == {"pay_token": "p"}


def test_a_page_without_tls_is_for_a_rail_on_this_machine_only(stub: StubRail) -> None:
    told = json.dumps({**GOOD, "payment_url": "http://pay.example/p"}).encode()
    stub.script(ORANGE.submits, Reply(201, told))
    answer = ORANGE.rail(stub).submit(ORANGE.order(), deadline=in_time())
    assert isinstance(answer, Unknown)
    assert "without TLS" in str(answer.error)


def test_a_refused_merchant_key_is_our_credentials(stub: StubRail) -> None:
    rail = ORANGE.rail(stub, merchant_key="canary-other")
    answer = rail.submit(ORANGE.order(), deadline=in_time())
    assert isinstance(answer, Unknown)
    assert isinstance(answer.error, RailCredentials)
    assert "canary" not in str(answer.error)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"base_url": "http://api.example/om"}, "https://"),
        ({"base_url": "ftp://api.example"}, "base_url"),
        ({"currencies": []}, "at least one"),
        ({"currencies": ["OUV"]}, "ISO 4217"),
        ({"lang": "de"}, "lang"),
        ({"client_secret": "canary é"}, "printable ASCII"),
        ({"merchant_key": ""}, "printable ASCII"),
        ({"notif_url": ""}, "notif_url"),
    ],
)
def test_a_table_that_can_not_work_is_refused(
    stub: StubRail, change: dict[str, Any], says: str
) -> None:
    faults: list[str] = []
    table = {**ORANGE.table(stub), **change}
    assert build({"orange_money": table}, WindowsTable(), faults) == {}
    assert says in "\n".join(faults)
    assert "canary" not in "\n".join(faults)
