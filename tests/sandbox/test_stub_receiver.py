"""The merchants' endpoints: what they accept, and how they can misbehave."""

from __future__ import annotations

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook
from stripe import WebhookSignature

from vpay_sandbox import journal, merchant
from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.process import SandboxError
from vpay_sandbox.stub import StubProcess
from vpay_sandbox.stub_receiver import StubReceiver

from .client import Got, call

SECRET = "whsec_c2FuZGJveC1zZWNyZXQtb2YtMzItYnl0ZXMtb3ItbW9yZQ=="
OLD_SECRET = "whsec_YW5vdGhlci1zZWNyZXQtb2YtMzItYnl0ZXMtb3ItbW9yZQ=="
BODY = b'{"id":"evt_1","object":"event","type":"payment_intent.succeeded","note":"caf\xc3\xa9"}'
PATH = "/hooks/m1/main"


def signed(body: bytes, secret: str = SECRET, *, age_s: int = 0) -> dict[str, str]:
    """What a sender signs, made by the packages' own code."""
    t = int(time.time()) - age_s
    value = WebhookSignature.generate_signature_header(body.decode(), secret, t)
    event = json.loads(body)["id"]
    moment = datetime.fromtimestamp(t, UTC)
    return {
        "Content-Type": "application/json",
        "Stripe-Signature": value,
        "Vpay-Signature": value,
        "Vpay-Event-Id": event,
        "Vpay-Attempt": "1",
        "webhook-id": event,
        "webhook-timestamp": str(t),
        "webhook-signature": Webhook(secret).sign(event, moment, body.decode()),
    }


def post(url: str, headers: dict[str, str], body: bytes = BODY, path: str = PATH) -> Got:
    return call(url, "POST", path, headers, body)


def deliveries(path: Path) -> list[dict[str, Any]]:
    return journal.read(path, "delivery")


def test_a_good_delivery_is_verified_by_both_packages_and_written_down(tmp_path: Path) -> None:
    with StubReceiver([Endpoint("m1", "main", (SECRET,))], journal=tmp_path / "j") as receiver:
        assert receiver.endpoint_url("m1", "main") == receiver.url + PATH
        assert post(receiver.url, signed(BODY)).status == 200
    (line,) = deliveries(tmp_path / "j")
    assert line["t"] >= line["at"] > 1_600_000_000_000
    del line["t"], line["at"]
    assert line == {
        "kind": "delivery",
        "n": 1,
        "merchant": "m1",
        "endpoint": "main",
        "event": "evt_1",
        "attempt": "1",
        "sha256": hashlib.sha256(BODY).hexdigest(),
        "length": len(BODY),
        "verified": True,
        "stripe": True,
        "standard": True,
        "why": "",
        "status": 200,
    }


def test_standard_webhooks_headers_may_be_absent(tmp_path: Path) -> None:
    headers = {k: v for k, v in signed(BODY).items() if not k.startswith("webhook-")}
    with StubReceiver([Endpoint("m1", "main", (SECRET,))], journal=tmp_path / "j") as receiver:
        assert post(receiver.url, headers).status == 200
    (line,) = deliveries(tmp_path / "j")
    assert (line["verified"], line["standard"]) == (True, None)


@pytest.mark.parametrize(
    ("change", "body", "why"),
    [
        (signed(BODY, OLD_SECRET), BODY, "stripe refuses"),
        (signed(BODY, age_s=301), BODY, "stripe refuses"),
        ({}, BODY.replace(b"evt_1", b"evt_2"), "stripe refuses"),
        ({"Stripe-Signature": "nonsense"}, BODY, "stripe refuses"),
        ({"Stripe-Signature": ""}, BODY, "stripe refuses"),
        ({"Vpay-Signature": "t=1,v1=00"}, BODY, "differ"),
        ({"webhook-signature": "v1,AAAA"}, BODY, "standardwebhooks refuses"),
        ({"webhook-signature": "nonsense"}, BODY, "standardwebhooks refuses"),
        ({"Vpay-Event-Id": "evt_9"}, BODY, "another event"),
        ({}, b"\xff\xfe", "stripe refuses"),
    ],
)
def test_a_delivery_that_is_wrong_is_answered_400_and_not_called_verified(
    tmp_path: Path, change: dict[str, str], body: bytes, why: str
) -> None:
    with StubReceiver([Endpoint("m1", "main", (SECRET,))], journal=tmp_path / "j") as receiver:
        assert post(receiver.url, {**signed(BODY), **change}, body).status == 400
    (line,) = deliveries(tmp_path / "j")
    assert (line["verified"], line["status"]) == (False, 400)
    assert why in line["why"]


def test_an_unsigned_delivery_is_refused(tmp_path: Path) -> None:
    with StubReceiver([Endpoint("m1", "main", (SECRET,))], journal=tmp_path / "j") as receiver:
        assert post(receiver.url, {}).status == 400
    assert deliveries(tmp_path / "j")[0]["why"] == "no Stripe-Signature"


def test_a_receiver_in_the_middle_of_a_rotation_accepts_both_secrets() -> None:
    with StubReceiver([Endpoint("m1", "main", (SECRET, OLD_SECRET))]) as receiver:
        assert post(receiver.url, signed(BODY, SECRET)).status == 200
        assert post(receiver.url, signed(BODY, OLD_SECRET)).status == 200


def test_an_unknown_endpoint_is_404_and_written_down(tmp_path: Path) -> None:
    with StubReceiver([Endpoint("m1", "main", (SECRET,))], journal=tmp_path / "j") as receiver:
        assert post(receiver.url, signed(BODY), path="/hooks/m1/other").status == 404
        assert post(receiver.url, signed(BODY), path="/elsewhere").status == 404
    assert [one["verified"] for one in deliveries(tmp_path / "j")] == [False, False]


def test_the_first_attempts_of_each_event_fail(tmp_path: Path) -> None:
    other = BODY.replace(b"evt_1", b"evt_2")
    flaky = Endpoint("m1", "main", (SECRET,), fail_first=2)
    with StubReceiver([flaky], journal=tmp_path / "j") as receiver:
        statuses = [post(receiver.url, signed(BODY)).status for _ in range(2)]
        statuses.append(post(receiver.url, signed(other), other).status)
        statuses += [post(receiver.url, signed(BODY)).status for _ in range(2)]
    assert statuses == [500, 500, 500, 200, 200]
    assert [one["status"] for one in deliveries(tmp_path / "j")] == statuses
    assert all(one["verified"] for one in deliveries(tmp_path / "j"))


def test_one_event_is_dropped_by_sabotage(tmp_path: Path) -> None:
    endpoints = [Endpoint("m1", "main", (SECRET,)), Endpoint("m1", "other", (SECRET,))]
    with StubReceiver(endpoints, journal=tmp_path / "j", sabotage="drop-one") as receiver:
        for event in (b"evt_1", b"evt_2"):
            body = BODY.replace(b"evt_1", event)
            for path in (PATH, "/hooks/m1/other"):
                assert post(receiver.url, signed(body), body, path).status == 200
        assert len(receiver.requests()) == 4
    told = [(one["endpoint"], one["event"]) for one in deliveries(tmp_path / "j")]
    assert told == [("other", "evt_1"), ("main", "evt_2"), ("other", "evt_2")]


def test_a_wrong_secret_by_sabotage_refuses_all_of_one_endpoint() -> None:
    endpoints = [Endpoint("m1", "main", (SECRET,)), Endpoint("m1", "other", (SECRET,))]
    with StubReceiver(endpoints, sabotage="wrong-secret") as receiver:
        assert post(receiver.url, signed(BODY)).status == 400
        assert post(receiver.url, signed(BODY), path="/hooks/m1/other").status == 200


def test_a_held_delivery_is_answered_after_the_release(tmp_path: Path) -> None:
    with (
        StubReceiver([Endpoint("m1", "main", (SECRET,))], journal=tmp_path / "j") as receiver,
        ThreadPoolExecutor(1) as pool,
        receiver.hold("/hooks/*") as hold,
    ):
        held = pool.submit(post, receiver.url, signed(BODY))
        hold.wait()
        assert not held.done()
        assert deliveries(tmp_path / "j") == []
        hold.release()
        assert held.result(10).status == 200
        assert [one["status"] for one in deliveries(tmp_path / "j")] == [200]


def test_a_sender_that_gives_up_is_written_down_as_unanswered(tmp_path: Path) -> None:
    with (
        StubReceiver([Endpoint("m1", "main", (SECRET,))], journal=tmp_path / "j") as receiver,
        ThreadPoolExecutor(1) as pool,
        receiver.hold() as hold,
    ):
        held = pool.submit(post, receiver.url, signed(BODY))
        hold.wait()
        receiver.stop()
        assert held.exception(10) is not None
    (line,) = deliveries(tmp_path / "j")
    assert (line["verified"], line["status"]) == (True, None)


def test_forty_slow_deliveries_are_held_at_once() -> None:
    slow = Endpoint("m1", "main", (SECRET,), slow_ms=50)
    with (
        StubReceiver([slow]) as receiver,
        ThreadPoolExecutor(40) as pool,
        receiver.hold() as hold,
    ):
        answers = [pool.submit(post, receiver.url, signed(BODY)) for _ in range(40)]
        hold.wait(40)
        hold.release()
        assert {answer.result(10).status for answer in answers} == {200}


def test_an_endpoint_changes_its_ways_by_control(tmp_path: Path) -> None:
    config = tmp_path / "endpoints.toml"
    config.write_text(f'[[endpoints]]\nmerchant = "m1"\nid = "main"\nsecrets = ["{SECRET}"]\n')
    args: list[str | Path] = ["--config", config, "--journal", tmp_path / "j"]
    args += ["--endpoint", f"m2/main={OLD_SECRET},{SECRET}"]
    with StubProcess("vpay_sandbox.stub_receiver", args, log=tmp_path / "log") as stub:
        assert post(stub.url, signed(BODY)).status == 200
        assert post(stub.url, signed(BODY), path="/hooks/m2/main").status == 200
        change = {"merchant": "m1", "id": "main", "fail_first": 9, "fail_status": 410}
        stub.control.call("endpoint", change)
        assert post(stub.url, signed(BODY)).status == 410
        stub.control.script("/hooks/m1/*", status=204)
        assert post(stub.url, signed(BODY)).status == 204
        assert stub.stop() == 0
    assert (tmp_path / "log").read_text() == ""
    assert [one["status"] for one in deliveries(tmp_path / "j")] == [200, 200, 410, 204]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("e.toml", "[[endpoints]]\nid = 'x'\nmerchant = 'm'\n", "endpoint x: 'secrets'"),
        ("e.toml", "[[endpoints]]\nid = 'x'\nsecrets = []\n", "endpoint x: .*'merchant'"),
        ("e.json", '{"endpoints": [{"id": "x", "secrets": [], "odd": 1}]}', "endpoint x: .*'odd'"),
        ("e.json", "{", "Expecting property name"),
    ],
)
def test_a_fault_in_the_configuration_is_said(
    tmp_path: Path, name: str, text: str, fault: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=fault):
        merchant.load(tmp_path / name)
    with pytest.raises(SandboxError, match=fault):
        StubProcess(
            "vpay_sandbox.stub_receiver", ["--config", tmp_path / name], log=tmp_path / "log"
        )
