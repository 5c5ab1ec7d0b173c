"""MTN's wire: tokens, what is sent, what answers mean, and its table of settings."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from typing import Any

import pytest

from tests.payment_kit import APPROVED, momo
from vpay_sandbox.httpd import Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import WindowsTable
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.errors import Configuration, Rail
from vpay_tasks.rails import build
from vpay_tasks.rails.mtn_momo import REASONS, MtnMomo, MtnMomoTable, plain
from vpay_tasks.rails.port import (
    Accepted,
    ByReference,
    Failed,
    Inquiry,
    NotFound,
    Order,
    Pending,
    StatusAnswer,
    SubmitAnswer,
    Succeeded,
    Unknown,
)
from vpay_tasks.rails.token import fingerprint

TOKEN, SUBMIT, STATUS = "*/token/", "*/requesttopay", "*/requesttopay/*"


def in_time() -> float:
    return time.monotonic() + 20


def order(**changes: Any) -> Order:
    made = Order(str(uuid.uuid4()), 1000, "EUR", payer=APPROVED)
    return dataclasses.replace(made, **changes)


def submit(rail: MtnMomo, wish: Order) -> SubmitAnswer:
    return rail.submit(wish, deadline=in_time())


def ask(rail: MtnMomo, wish: Order) -> StatusAnswer:
    inquiry = Inquiry(wish.reference, wish.amount, wish.currency)
    return rail.query_status(inquiry, deadline=in_time())


def test_a_payment_from_prompt_to_paid(stub: StubRail) -> None:
    rail, wish = momo(stub.url), order()
    assert ask(rail, wish) == NotFound()
    assert submit(rail, wish) == Accepted()
    assert submit(rail, wish) == Accepted()  # a duplicate of our own reference
    answer = ask(rail, wish)
    assert isinstance(answer, Succeeded)
    assert answer.txn_id
    assert len(stub.requests(TOKEN)) == 1


@pytest.mark.parametrize("reason", [*sorted(REASONS), "INTERNAL_PROCESSING_ERROR", "MOON_PHASE"])
def test_each_reason_is_one_of_our_codes(stub: StubRail, reason: str) -> None:
    rail, wish = momo(stub.url), order()
    submit(rail, wish)
    stub.decide(wish.reference, "FAILED", reason=reason)
    expected = REASONS.get(reason, FailureCode.PROVIDER_ERROR)
    assert ask(rail, wish) == Failed(expected, reason)


@pytest.mark.parametrize("reason", [*sorted(REASONS), "ONGOING", "PAYER_DELAYED"])
def test_a_reason_decides_nothing_without_its_word(stub: StubRail, reason: str) -> None:
    rail, wish = momo(stub.url), order()
    told = {
        "externalId": wish.reference,
        "amount": "10",
        "currency": "EUR",
        "reason": reason,
    }
    stub.script(STATUS, Reply(200, json.dumps({**told, "status": "PENDING"}).encode()))
    assert ask(rail, wish) == Pending()
    for word in ({"status": "failed"}, {"status": "TIMEOUT"}, {"status": None}, {}):
        stub.script(STATUS, Reply(200, json.dumps({**told, **word}).encode()))
        with pytest.raises(Rail):
            ask(rail, wish)


def test_the_table_of_reasons_is_the_documented_one() -> None:
    assert {reason: code.value for reason, code in REASONS.items()} == {
        "NOT_ENOUGH_FUNDS": "insufficient_funds",
        "COULD_NOT_PERFORM_TRANSACTION": "payer_timeout",
        "EXPIRED": "payer_timeout",
        "PAYMENT_NOT_APPROVED": "payer_declined",
        "APPROVAL_REJECTED": "payer_declined",
        "PAYER_NOT_FOUND": "invalid_payer",
        "PAYER_LIMIT_REACHED": "payer_limit_reached",
        "SENDER_ACCOUNT_NOT_ACTIVE": "payer_account_blocked",
        "PAYEE_NOT_FOUND": "invalid_payee",
        "PAYEE_NOT_ALLOWED_TO_RECEIVE": "payee_account_blocked",
        "NOT_ALLOWED": "provider_account_blocked",
        "SERVICE_UNAVAILABLE": "provider_unavailable",
    }


def test_what_is_sent_is_what_the_documents_ask_for(stub: StubRail) -> None:
    rail = momo(
        stub.url,
        callback_url="https://pay.example/callback",
        payer_message="Café <b>& co</b>",
        payee_note="n" * 200,
    )
    wish = order(amount=1050)
    submit(rail, wish)
    request = stub.requests(SUBMIT)[0].request
    assert request.headers["x-reference-id"] == wish.reference
    assert request.headers["x-target-environment"] == "sandbox"
    assert request.headers["x-callback-url"] == "https://pay.example/callback"
    assert json.loads(request.body) == {
        "amount": "10.50",
        "currency": "EUR",
        "externalId": wish.reference,
        "payer": {"partyIdType": "MSISDN", "partyId": APPROVED},
        "payerMessage": "Caf b co/b",
        "payeeNote": "n" * 160,
    }
    token = stub.requests(TOKEN)[0].request
    assert json.loads(token.body) == {"grant_type": "client_credentials"}


def test_without_a_callback_url_there_is_no_header_for_it(stub: StubRail) -> None:
    submit(momo(stub.url), order())
    assert "x-callback-url" not in stub.requests(SUBMIT)[0].request.headers


@pytest.mark.parametrize("text", ["", "a" * 500, "<&>", "\x00\n\x7f", "🙂é", "plain"])
def test_notes_are_plain_ascii_of_160_characters(text: str) -> None:
    note = plain(text)
    assert len(note) <= 160
    assert note.isascii()
    assert not set(note) & set("&<>\n\x00")


class Clock:
    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now


def test_a_token_is_used_until_a_minute_before_its_end(stub: StubRail) -> None:
    clock = Clock()
    real = momo(stub.url)
    rail = MtnMomo(real._table, WindowsTable(), clock=clock)
    for elapsed, minted in ((0, 1), (3539, 1), (2, 2)):
        clock.now += elapsed
        wish = order()
        inquiry = Inquiry(wish.reference, wish.amount, wish.currency)
        assert rail.query_status(inquiry, deadline=clock.now + 20) == NotFound()
        assert len(stub.requests(TOKEN)) == minted


@pytest.mark.parametrize(
    "code", ["INVALID_CURRENCY", "NOT_ALLOWED_TARGET_ENVIRONMENT", "INVALID_CALLBACK_URL_HOST"]
)
@pytest.mark.parametrize("status", [400, 500])
def test_codes_about_our_settings_are_configuration(stub: StubRail, code: str, status: int) -> None:
    rail = momo(stub.url)
    stub.script("*/requesttopay*", Reply(status, json.dumps({"code": code}).encode()), times=2)
    unknown = submit(rail, order())
    assert isinstance(unknown, Unknown)
    assert isinstance(unknown.error, Configuration)
    with pytest.raises(Configuration, match=code):
        ask(rail, order())


def test_the_answers_number_may_be_missing_or_a_number(stub: StubRail) -> None:
    rail, wish = momo(stub.url), order()
    body = {"externalId": wish.reference, "amount": 10, "currency": "EUR", "status": "SUCCESSFUL"}
    for given, expected in ((None, None), (4711, "4711"), ("", None), ("x" * 500, "x" * 128)):
        told = {**body, "financialTransactionId": given}
        stub.script(STATUS, Reply(200, json.dumps(told).encode()))
        assert ask(rail, wish) == Succeeded(expected)
    stub.script(STATUS, Reply(200, json.dumps({**body, "status": "PENDING"}).encode()))
    assert ask(rail, wish) == Pending()


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ({"referenceId": "r-1", "externalId": "e-1", "status": "SUCCESSFUL"}, "r-1"),
        ({"externalId": "e-1"}, "e-1"),
        ({"referenceId": 7, "externalId": "e-1"}, "e-1"),
        ({"referenceId": "", "externalId": "e-1"}, "e-1"),
    ],
)
def test_a_callback_names_a_reference_and_nothing_else(
    stub: StubRail, body: dict[str, Any], reference: str
) -> None:
    assert momo(stub.url).parse_callback(json.dumps(body).encode()) == ByReference(reference)
    assert stub.requests() == []


def test_a_fingerprint_knows_where_its_parts_end() -> None:
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint("ab", "c") == fingerprint("ab", "c")


GOOD: dict[str, Any] = {
    "base_url": "https://proxy.momoapi.example",
    "api_user": "u",
    "api_key": "k",
    "subscription_key": "s",
}


def test_every_fault_of_every_rail_is_told_at_once_without_a_value() -> None:
    faults: list[str] = []
    tables = {
        "mtn_momo": {"base_url": "ftp://x", "api_user": "u", "api_key": "canary é", "api_kye": "k"},
        "mtn_mono": {},
    }
    assert build(tables, WindowsTable(), faults) == {}
    text = "\n".join(sorted(faults))
    assert "rails.mtn_mono: no such rail; did you mean 'mtn_momo'?" in text
    assert "rails.mtn_momo.api_kye: unknown key, did you mean 'api_key'?" in text
    for name in ("base_url", "api_key", "subscription_key"):
        assert f"rails.mtn_momo.{name}: " in text
    assert "canary" not in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"currencies": ("XAF",)}, "knows EUR only"),
        ({"target_environment": "mtncameroon", "currencies": ()}, "at least one"),
        ({"target_environment": "mtncameroon", "currencies": ("xaf",)}, "ISO 4217"),
        ({"target_environment": "mtncameroon", "base_url": "http://momo.example"}, "https://"),
        ({"subscription_key": "a\nb"}, "printable ASCII"),
        ({"callback_url": ""}, "callback_url"),
    ],
)
def test_a_table_that_can_not_work_is_refused(change: dict[str, Any], says: str) -> None:
    faults: list[str] = []
    assert build({"mtn_momo": {**GOOD, **change}}, WindowsTable(), faults) == {}
    assert says in "\n".join(faults)


def test_a_countrys_table_makes_an_adapter_with_its_currency() -> None:
    faults: list[str] = []
    table = {**GOOD, "target_environment": "mtncameroon", "currencies": ["XAF"]}
    rails = build({"mtn_momo": table}, WindowsTable(), faults)
    assert faults == []
    assert rails["mtn_momo"].capabilities.currencies == {"XAF"}
    assert MtnMomoTable(**GOOD).target_environment == "sandbox"
