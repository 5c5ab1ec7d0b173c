"""Each rail on its bench: how its adapter is made, and how its server words things."""

from __future__ import annotations

import dataclasses
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from vpay_sandbox.httpd import Answer, Hangup, Reply
from vpay_sandbox.momo import Credentials
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import WindowsTable
from vpay_tasks.core import money
from vpay_tasks.rails import build
from vpay_tasks.rails.port import Accepted, Inquiry, Order, RailPort, Unknown

PAYER: Final = "46733123601"


class Bench(ABC):
    """One rail. The conformance suite knows rails by this alone."""

    code: ClassVar[str]
    submits: ClassVar[str]
    statuses: ClassVar[str]
    tokens: ClassVar[str | None]
    """Where it asks for tokens; None for a rail without them."""
    currency: ClassVar[str]
    amount: ClassVar[int] = 1000
    duplicate: ClassVar[type[Accepted | Unknown]] = Accepted
    """What its documents make of a reference that it has already."""
    not_found: ClassVar[Reply | None]
    """How it says that it does not know a reference, if its documents say how."""
    words: ClassVar[Mapping[str, str]]
    """Its own for pending, succeeded and failed."""
    reason: ClassVar[str]
    """The key of a failure's words."""
    decides: ClassVar[Reply]
    """An answer to a submit that settles by its JSON what became of it."""

    @abstractmethod
    def table(self, stub: StubRail) -> dict[str, Any]:
        """`[rails.<code>]` for the stub."""

    @abstractmethod
    def secrets(self, stub: StubRail) -> list[str]: ...

    @abstractmethod
    def status(self, inquiry: Inquiry) -> dict[str, Any]:
        """A status answer without its word."""

    @abstractmethod
    def keys(self) -> tuple[str, str, str]:
        """The names of reference, amount and currency in a status answer."""

    @abstractmethod
    def callback(self, reference: object) -> dict[str, Any]: ...

    def accepted_with(self, secret: str) -> Reply | None:
        """An acceptance with a secret that callbacks say back instead of the reference; None
        where they always name the reference."""
        return None

    def said_back(self, secret: object) -> dict[str, Any]:
        """Such a callback."""
        return {}

    def rail(
        self, stub: StubRail, *, windows: WindowsTable | None = None, **changes: Any
    ) -> RailPort:
        faults: list[str] = []
        table = {**self.table(stub), **changes}
        rails = build({self.code: table}, windows or WindowsTable(), faults)
        assert faults == []
        return rails[self.code]

    def order(self, **changes: Any) -> Order:
        made = Order(str(uuid.uuid4()), self.amount, self.currency, payer=PAYER)
        return dataclasses.replace(made, **changes)

    def inquiry(self, order: Order, accepted: Accepted | None = None) -> Inquiry:
        """The question about `order`; with the key material of its acceptance, or some."""
        material = {"pay_token": "p" * 32} if accepted is None else accepted.key_material
        return Inquiry(order.reference, order.amount, order.currency, material)

    def serve(self, stub: StubRail) -> None:  # noqa: B027 most need nothing
        """Make the stub accept submits; those that know the wire do so already."""

    def said(self, inquiry: Inquiry, word: str, **changes: Any) -> Reply:
        word = self.words.get(word, word)
        body = {**self.status(inquiry), "status": word, **changes}
        return Reply(200, json.dumps(self.finished(body)).encode())

    def finished(self, body: dict[str, Any]) -> dict[str, Any]:
        return body


class MtnBench(Bench):
    code = "mtn_momo"
    submits, statuses, tokens = "*/requesttopay", "*/requesttopay/*", "*/token/"
    currency = "EUR"
    not_found = Reply(404, b'{"code":"RESOURCE_NOT_FOUND"}')
    words: ClassVar = {"pending": "PENDING", "succeeded": "SUCCESSFUL", "failed": "FAILED"}
    reason = "reason"
    decides = Reply(400, b'{"code":"PAYER_NOT_FOUND"}')

    def table(self, stub: StubRail) -> dict[str, Any]:
        return {"base_url": stub.url, **dataclasses.asdict(stub.credentials)}

    def secrets(self, stub: StubRail) -> list[str]:
        keys: Credentials = stub.credentials
        return [keys.api_key, keys.subscription_key, PAYER, *stub.tokens.good]

    def status(self, inquiry: Inquiry) -> dict[str, Any]:
        return {
            "externalId": inquiry.reference,
            "amount": money.major_text(inquiry.amount, inquiry.currency),
            "currency": inquiry.currency,
            "payer": {"partyIdType": "MSISDN", "partyId": PAYER},
        }

    def keys(self) -> tuple[str, str, str]:
        return "externalId", "amount", "currency"

    def callback(self, reference: object) -> dict[str, Any]:
        return {"referenceId": reference, "status": "SUCCESSFUL"}


class OrangeBench(Bench):
    code = "orange_money"
    submits, statuses = "*/v1/webpayment", "*/v1/transactionstatus"
    tokens = "/oauth/v2/token"
    currency = "XAF"
    duplicate = Unknown
    not_found = None
    words: ClassVar = {"pending": "INITIATED", "succeeded": "SUCCESS", "failed": "FAILED"}
    reason = "message"
    decides = Reply(201, b'{"pay_token":"p","payment_url":"https://pay.example/p"}')

    def table(self, stub: StubRail) -> dict[str, Any]:
        return {
            "base_url": stub.orange_url,
            "notif_url": "https://pay.example/callback",
            "currencies": ["XAF", "EUR"],
            **dataclasses.asdict(stub.orange_credentials),
        }

    def secrets(self, stub: StubRail) -> list[str]:
        keys = stub.orange_credentials
        return [keys.client_secret, keys.merchant_key, "p" * 32, *stub.tokens.good]

    def order(self, **changes: Any) -> Order:
        wish = {"payer": None, "return_url": "https://shop.example/back", **changes}
        return super().order(**wish)

    def status(self, inquiry: Inquiry) -> dict[str, Any]:
        return {
            "order_id": inquiry.reference,
            "amount": inquiry.amount,
            "currency": inquiry.currency,
            "txnid": "MP1",
        }

    def keys(self) -> tuple[str, str, str]:
        return "order_id", "amount", "currency"

    def callback(self, reference: object) -> dict[str, Any]:
        return {"order_id": reference, "status": "SUCCESS", "txnid": "MP1"}

    def accepted_with(self, secret: str) -> Reply:
        told = {**json.loads(self.decides.body), "notif_token": secret}
        return Reply(201, json.dumps(told).encode())

    def said_back(self, secret: object) -> dict[str, Any]:
        return {"notif_token": secret, "status": "SUCCESS", "txnid": "MP1"}


class ParrotBench(Bench):
    """A stranger's rail: its server is scripted, its settings name its factory."""

    code = "parrot"
    submits, statuses, tokens = "/payments", "/payments/*", None
    currency = "EUR"
    not_found = Reply(404, b'{"error":"unknown id"}')
    words: ClassVar = {"pending": "waiting", "succeeded": "paid", "failed": "refused"}
    reason = "reason"
    decides = Reply(422, b'{"reason":"no account"}')

    def table(self, stub: StubRail) -> dict[str, Any]:
        factory = "tests.rails.example_rail:from_settings"
        return {"factory": factory, "base_url": stub.url, "api_key": "canary-parrot-key"}

    def secrets(self, stub: StubRail) -> list[str]:
        return ["canary-parrot-key", PAYER]

    def status(self, inquiry: Inquiry) -> dict[str, Any]:
        return {
            "id": inquiry.reference,
            "amount": inquiry.amount,
            "currency": inquiry.currency,
        }

    def finished(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"state": body.pop("status"), **body}

    def keys(self) -> tuple[str, str, str]:
        return "id", "amount", "currency"

    def callback(self, reference: object) -> dict[str, Any]:
        return {"id": reference}

    def serve(self, stub: StubRail) -> None:
        stub.script(self.submits, Reply(201, b"{}"), times=None)


MTN, ORANGE, PARROT = MtnBench(), OrangeBench(), ParrotBench()
BENCHES: Final[dict[str, Bench]] = {bench.code: bench for bench in (MTN, ORANGE, PARROT)}


def nowhere(bench: Bench, inquiry: Inquiry) -> dict[str, Answer]:
    """Answers to a question that are no verdict on any rail."""
    paid = bench.said(inquiry, "succeeded").body
    failed = bench.said(inquiry, "failed").body
    # The word stands in both, so it stands twice.
    twice = failed.removeprefix(b"{").removesuffix(b"}")
    return {
        **troubles(),
        **anothers(bench, inquiry),
        "404 we don't know": Reply(404, b'{"statusCode":404,"message":"Resource not found"}'),
        "html": Reply(200, b"<html>" + bench.words["succeeded"].encode() + b"</html>"),
        "not utf-8": Reply(200, b"\xff\xfe"),
        "a list": Reply(200, b"[]"),
        "nothing": Reply(200),
        "nothing, 201": Reply(201),
        "deep": Reply(200, b"[" * 100_000),
        "huge": Reply(200, b" " * (256 * 1024 + 1)),
        "cut off": Reply(200, paid[:-9]),
        "no word": bench.said(inquiry, ""),
        "lower case": bench.said(inquiry, bench.words["succeeded"].swapcase()),
        "a longer word": bench.said(inquiry, bench.words["succeeded"] + " "),
        "another word": bench.said(inquiry, "TIMEOUT"),
        "a number": bench.said(inquiry, "failed", status=1),
        "a list of words": bench.said(inquiry, "failed", status=[bench.words["failed"]]),
        "202": Reply(202, paid),
        "400": Reply(400, bench.said(inquiry, "failed").body),
        "500 that says paid": Reply(500, paid),
        **{name: Reply(200, body) for name, body in garbled(paid, twice).items()},
    }


def garbled(body: bytes, *more: bytes) -> dict[str, bytes]:
    """`body`, an object, with something in it that makes it no JSON that two readers would
    read alike; `more` are members that stand in it already."""
    inner = body.strip().removeprefix(b"{").removesuffix(b"}")
    added = [
        b'"x":1e99999999999999999999',
        b'"x":1e-99999999999999999999',
        b'"x":[1e999]',
        b'"x":' + b"9" * 5000,
        b'"x":0.' + b"9" * 5000,
        b'"x":NaN',
        b'"x":-Infinity',
        b'"x":1,"x":2',
        b'"x":{"y":1,"y":1}',
        *more,
    ]
    return {f"garbled by {text[:30].decode()}": b"{%b,%b}" % (inner, text) for text in added}


def anothers(bench: Bench, inquiry: Inquiry) -> dict[str, Answer]:
    """Verdicts about something else than what was asked about."""
    reference, amount, currency = bench.keys()
    return {
        "another reference": bench.said(inquiry, "succeeded", **{reference: "other"}),
        "no reference": bench.said(inquiry, "succeeded", **{reference: None}),
        "another's failure": bench.said(inquiry, "failed", **{reference: str(uuid.uuid4())}),
        "another amount": bench.said(inquiry, "succeeded", **{amount: "10.01"}),
        "a hundredfold": bench.said(inquiry, "succeeded", **{amount: 100_000}),
        "a hundredth": bench.said(inquiry, "succeeded", **{amount: "0.10"}),
        "a float": bench.said(inquiry, "succeeded", **{amount: "1e1"}),
        "no amount": bench.said(inquiry, "succeeded", **{amount: None}),
        "another currency": bench.said(inquiry, "failed", **{currency: "XOF"}),
        "no currency": bench.said(inquiry, "failed", **{currency: None}),
    }


def troubles() -> dict[str, Answer]:
    """What a server or a proxy before it says when it is in trouble, to any request."""
    return {
        "hang-up": Hangup(),
        "500": Reply(500, b'{"code":"INTERNAL_PROCESSING_ERROR"}'),
        "503": Reply(503),
        "503 with html": Reply(503, b"<html>be right back</html>"),
        "429": Reply(429, b"", {"Retry-After": "7"}),
        "403": Reply(403),
        "302": Reply(302, headers={"Location": "/elsewhere"}),
        "307": Reply(307, headers={"Location": "/elsewhere"}),
    }
