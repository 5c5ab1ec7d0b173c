"""What spec and port ask of every rail, ours or a stranger's."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rails.benches import BENCHES, Bench, anothers, garbled, nowhere, troubles
from tests.rails.reached import reached
from vpay_sandbox.httpd import Answer, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import WindowsTable
from vpay_tasks.core import money
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.errors import (
    Configuration,
    InvalidRequest,
    Rail,
    RailCredentials,
    RailMismatch,
    VpayError,
    describe,
)
from vpay_tasks.rails import RAILS, build
from vpay_tasks.rails.port import (
    CALLBACK_KEY,
    Accepted,
    ByKey,
    ByReference,
    Failed,
    Flow,
    Inquiry,
    NotFound,
    Pending,
    RailPort,
    StatusAnswer,
    SubmitAnswer,
    Succeeded,
    Unknown,
)

SHORT = WindowsTable(rail_connect=0.3, rail_request=0.3)


def in_time() -> float:
    return time.monotonic() + 20


@pytest.fixture
def rail(bench: Bench, stub: StubRail) -> RailPort:
    return bench.rail(stub)


@pytest.fixture
def inquiry(bench: Bench) -> Inquiry:
    return bench.inquiry(bench.order())


def submit(bench: Bench, rail: RailPort, **changes: Any) -> SubmitAnswer:
    return rail.submit(bench.order(**changes), deadline=in_time())


def ask(rail: RailPort, inquiry: Inquiry) -> StatusAnswer:
    return rail.query_status(inquiry, deadline=in_time())


def paths(stub: StubRail) -> Iterator[str]:
    return (seen.request.path for seen in stub.requests())


def test_every_rail_stands_on_a_bench() -> None:
    assert set(BENCHES) == {*RAILS, "parrot"}


def test_a_rail_says_what_it_is(bench: Bench, rail: RailPort) -> None:
    able = rail.capabilities
    assert rail.code == bench.code
    assert able.currencies <= set(money.EXPONENTS)
    assert bench.currency in able.currencies
    # A prompt needs a number, a page a way back.
    assert able.needs_payer == (rail.flow is Flow.PUSH)
    assert able.needs_return_url == (rail.flow is Flow.REDIRECT)


def test_an_accepted_submit_has_what_its_flow_needs(bench: Bench, rail: RailPort) -> None:
    answer = submit(bench, rail)
    assert isinstance(answer, Accepted)
    assert bool(answer.redirect_url) == (rail.flow is Flow.REDIRECT)
    assert bool(answer.key_material) == (rail.flow is Flow.REDIRECT)


def test_the_three_words(bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry) -> None:
    stub.script(bench.statuses, bench.said(inquiry, "pending"))
    stub.script(bench.statuses, bench.said(inquiry, "succeeded"))
    stub.script(bench.statuses, bench.said(inquiry, "failed"))
    assert ask(rail, inquiry) == Pending()
    assert isinstance(ask(rail, inquiry), Succeeded)
    failed = ask(rail, inquiry)
    assert isinstance(failed, Failed)
    assert failed.code in FailureCode


def test_a_reference_that_the_rail_does_not_know(
    bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry
) -> None:
    if bench.not_found is None:
        stub.script(bench.statuses, Reply(404))
        with pytest.raises(Rail):
            ask(rail, inquiry)
    else:
        stub.script(bench.statuses, bench.not_found)
        assert ask(rail, inquiry) == NotFound()


def test_nothing_else_that_is_said_about_a_payment_is_an_answer(
    bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry
) -> None:
    for name, reply in nowhere(bench, inquiry).items():
        stub.script(bench.statuses, reply)
        with pytest.raises(Rail):
            pytest.fail(f"{name}: {ask(rail, inquiry)}")
    assert "/elsewhere" not in paths(stub)


def test_a_verdict_about_another_payment_is_a_mismatch_and_told_as_one(
    bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry
) -> None:
    for name, reply in anothers(bench, inquiry).items():
        stub.script(bench.statuses, reply)
        with pytest.raises(RailMismatch):
            pytest.fail(f"{name}: {ask(rail, inquiry)}")


def test_whatever_trouble_a_submit_meets_the_rail_may_have_it(bench: Bench, stub: StubRail) -> None:
    stub.forget_scripts()
    rail = bench.rail(stub)
    replies: dict[str, Answer] = {
        **troubles(),
        "html": Reply(200, b"<html>Rejected</html>"),
        "200, empty": Reply(200),
        "204": Reply(204),
        "400": Reply(400, b'{"code":"NEVER_HEARD_OF"}'),
        "400 in bytes": Reply(400, b"\xff\x00"),
        "404": Reply(404),
        "huge": Reply(201, b" " * (256 * 1024 + 1)),
        **{
            name: Reply(bench.decides.status, body)
            for name, body in garbled(bench.decides.body).items()
        },
    }
    for name, reply in replies.items():
        stub.script(bench.submits, reply)
        answer = submit(bench, rail)
        assert isinstance(answer, Unknown), name
        assert isinstance(answer.error, Rail | Configuration), name
        assert isinstance(answer.error, RailCredentials) == (name == "403"), name
    assert "/elsewhere" not in paths(stub)
    stub.script(bench.submits, bench.decides)
    assert not isinstance(submit(bench, rail), Unknown)


def test_a_reference_that_the_rail_has_is_accepted_or_unknown_and_never_declined(
    bench: Bench, rail: RailPort, stub: StubRail
) -> None:
    wish = bench.order()
    first, second = (rail.submit(wish, deadline=in_time()) for _ in range(2))
    assert isinstance(first, Accepted)
    assert isinstance(second, bench.duplicate)


def test_the_deadline_ends_whatever_a_rail_keeps_open(
    bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry
) -> None:
    began = time.monotonic()
    with stub.hold():
        answer = rail.submit(bench.order(), deadline=began + 0.3)
        with pytest.raises(Rail):
            rail.query_status(inquiry, deadline=time.monotonic() + 0.3)
    assert isinstance(answer, Unknown)
    assert time.monotonic() - began < 5


def test_a_request_is_shorter_than_the_settings_allow(
    bench: Bench, stub: StubRail, inquiry: Inquiry
) -> None:
    rail = bench.rail(stub, windows=SHORT)
    began = time.monotonic()
    with stub.hold(), pytest.raises(Rail):
        ask(rail, inquiry)
    assert time.monotonic() - began < 5


def test_with_no_time_left_nothing_is_sent(
    bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry
) -> None:
    assert isinstance(rail.submit(bench.order(), deadline=time.monotonic()), Unknown)
    with pytest.raises(Rail):
        rail.query_status(inquiry, deadline=time.monotonic())
    assert stub.requests() == []


def test_a_proxy_of_the_environment_is_not_used(
    bench: Bench, stub: StubRail, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    monkeypatch.setenv("no_proxy", "")
    assert isinstance(submit(bench, bench.rail(stub)), Accepted)


def test_a_fraction_is_sent_as_it_is_or_refused_before_any_call(
    bench: Bench, rail: RailPort, stub: StubRail
) -> None:
    if not rail.capabilities.whole_amounts:
        assert isinstance(submit(bench, rail, amount=1050, currency="EUR"), Accepted)
        body = json.loads(stub.requests(bench.submits)[0].request.body)
        assert body["amount"] in ("10.50", 1050)
        return
    with pytest.raises(InvalidRequest, match="whole"):
        submit(bench, rail, amount=1050, currency="EUR")
    assert stub.requests() == []


def test_without_a_way_back_a_redirect_is_not_begun(
    bench: Bench, rail: RailPort, stub: StubRail
) -> None:
    if rail.capabilities.needs_return_url:
        with pytest.raises(Configuration, match="return_url"):
            submit(bench, rail, return_url=None)
        assert stub.requests() == []


def test_refused_credentials_are_minted_anew_once_where_there_are_tokens(
    bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry
) -> None:
    stub.script(bench.statuses, Reply(401), times=None)
    with pytest.raises(RailCredentials):
        ask(rail, inquiry)
    assert len(stub.requests(bench.statuses)) == (1 if bench.tokens is None else 2)
    assert len(stub.requests(bench.tokens or "/none")) == (0 if bench.tokens is None else 2)


def test_no_secret_is_in_a_repr_a_log_or_an_error(
    bench: Bench,
    rail: RailPort,
    stub: StubRail,
    inquiry: Inquiry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    wish = bench.order()
    accepted = rail.submit(wish, deadline=in_time())
    assert isinstance(accepted, Accepted)
    shown = [repr(wish), repr(inquiry), repr(accepted), *map(repr, reached(rail))]
    for reply in nowhere(bench, inquiry).values():
        stub.script(bench.statuses, reply)
        with pytest.raises(VpayError) as raised:
            ask(rail, inquiry)
        shown += [repr(raised.value), describe(raised.value)]
        stub.script(bench.submits, reply)
        shown.append(repr(submit(bench, rail)))
    shown += [str(record.__dict__) for record in caplog.records]
    text = "\n".join(shown)
    secrets = [*bench.secrets(stub), *accepted.key_material.values()]
    assert [secret for secret in secrets if secret in text] == []


@pytest.mark.parametrize(
    "junk", ["", "a\x00b", "\ud800", "\u202e\x1b[31m", "x" * 9000, 7, None, {"code": 1}, ["x"]]
)
def test_whatever_a_failure_says_for_a_reason_it_is_a_failure(
    bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry, junk: object
) -> None:
    stub.script(bench.statuses, bench.said(inquiry, "failed", **{bench.reason: junk}))
    answer = ask(rail, inquiry)
    assert isinstance(answer, Failed)
    assert answer.code is FailureCode.PROVIDER_ERROR


@pytest.mark.parametrize("junk", ["a\x00b", "\ud800", "x" * 500, "", 7, 10**50, True, None, [1]])
def test_whatever_number_a_success_has_it_fits_its_column(
    bench: Bench, rail: RailPort, stub: StubRail, inquiry: Inquiry, junk: object
) -> None:
    numbers = {"financialTransactionId": junk, "txnid": junk}
    stub.script(bench.statuses, bench.said(inquiry, "succeeded", **numbers))
    answer = ask(rail, inquiry)
    assert isinstance(answer, Succeeded)
    assert answer.txn_id is None or (1 <= len(answer.txn_id) <= 128 and answer.txn_id.isprintable())


def test_a_callback_names_a_reference_without_a_call(
    bench: Bench, rail: RailPort, stub: StubRail
) -> None:
    body = json.dumps(bench.callback("r-1")).encode()
    assert rail.parse_callback(body) == ByReference("r-1")
    assert stub.requests() == []


def test_a_callback_without_a_reference_is_found_by_what_came_with_the_acceptance(
    bench: Bench, rail: RailPort, stub: StubRail
) -> None:
    secret = "canary-" + "s" * 25
    if (reply := bench.accepted_with(secret)) is None:
        return
    stub.script(bench.submits, reply)
    accepted = submit(bench, rail)
    assert isinstance(accepted, Accepted)
    key = accepted.key_material[CALLBACK_KEY]
    body = json.dumps(bench.said_back(secret)).encode()
    assert rail.parse_callback(body) == ByKey(key)
    assert secret not in accepted.key_material.values(), "its fingerprint is kept, not itself"
    both = {**bench.said_back(secret), **bench.callback("r-1")}
    assert rail.parse_callback(json.dumps(both).encode()) == ByReference("r-1")
    for value in ("", " ", "a b", "x" * 513, "\u00e9", "a\x00", 7, None, True, [secret]):
        with pytest.raises(InvalidRequest):
            rail.parse_callback(json.dumps(bench.said_back(value)).encode())


def test_a_malformed_callback_is_refused_and_nothing_else(
    bench: Bench, rail: RailPort, stub: StubRail
) -> None:
    values: list[object] = ["", "a\x00", "x" * 129, "\ud800", 7, None, True, ["r"], {"a": 1}]
    bodies = [json.dumps(bench.callback(value)).encode() for value in values]
    bodies += garbled(json.dumps(bench.callback("r-1")).encode()).values()
    bodies += [b"", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000, b"9" * 5000, b'"r-1"', b"NaN"]
    for body in bodies:
        with pytest.raises(InvalidRequest):
            rail.parse_callback(body)
    assert stub.requests() == []


def test_a_fault_of_its_table_is_named_without_a_value(bench: Bench, stub: StubRail) -> None:
    faults: list[str] = []
    table = {**bench.table(stub), "base_urk": "canary"}
    assert build({bench.code: table}, WindowsTable(), faults) == {}
    assert faults == [f"rails.{bench.code}.base_urk: unknown key, did you mean 'base_url'?"]
