"""Orange Money's web payment API: token, webpayment, transactionstatus, and the payer's page."""

from __future__ import annotations

import base64
import html
import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from vpay_sandbox.callback import Callback
from vpay_sandbox.httpd import Answer, Reply, Request, json_reply
from vpay_sandbox.journal import Journal
from vpay_sandbox.rail_book import Book, Payment, Tokens, due, is_uuid4, object_in, quiet
from vpay_sandbox.scenarios import Quiet, Script, StatusStep

BASE = "/orange-money-webpay/dev"
TOKEN_PATH = "/oauth/v2/token"  # noqa: S105 a path
SUBMIT_PATH = f"{BASE}/v1/webpayment"
STATUS_PATH = f"{BASE}/v1/transactionstatus"
PAGE_PATH = "/orange/payment/"
PATHS = (TOKEN_PATH, BASE, PAGE_PATH)
TEXTS = ("currency", "order_id", "return_url", "cancel_url", "notif_url", "lang")

PAGE = """<!doctype html><title>Stub rail</title>
<h1>Pay {amount} {currency}?</h1>
<p>Order {order}</p>
<p><a href="?answer=approve">Approve</a> · <a href="?answer=decline">Decline</a></p>
"""


@dataclass(frozen=True, slots=True)
class OrangeCredentials:
    """What the rail accepts; the stub's own, worth nothing elsewhere."""

    client_id: str = "sandbox-client-id"
    client_secret: str = "sandbox-client-secret"  # noqa: S105 the stub's own
    merchant_key: str = "sandbox-merchant-key"


def refusal(status: int, message: str) -> Reply:
    return json_reply(status, {"code": status, "message": message, "description": ""})


class OrangeRail:
    """One merchant's web payments."""

    def __init__(
        self,
        journal: Journal,
        script: Script,
        book: Book,
        credentials: OrangeCredentials,
        tokens: Tokens,
    ) -> None:
        self._journal = journal
        self._script = script
        self._book = book
        self._credentials = credentials
        self.tokens = tokens
        self._pages: dict[str, Payment] = {}

    # The journal.

    def arrived(self, request: Request) -> None:
        op, reference = self._operation(request)
        fields: dict[str, Any] = {"n": request.n, "op": op, "method": request.method}
        path = PAGE_PATH if op == "page" else request.path  # without the pay token
        fields |= {"path": path, "reference": reference}
        if op == "submit":
            wish = object_in(request) or {}
            fields |= {key: wish.get(key) for key in ("amount", "currency")}
            fields |= {"externalId": wish.get("order_id"), "payer": None}
        self._journal.write("request", **fields)

    def answered(self, request: Request, status: int | None) -> None:
        op, reference = self._operation(request)
        self._journal.write("answer", n=request.n, op=op, reference=reference, status=status)

    # The API.

    async def answer(self, request: Request) -> Answer:
        op, _ = self._operation(request)
        if op == "token":
            return self._token(request)
        if op == "page":
            return self._page(request)
        if op == "other":
            return refusal(404, "Resource not found")
        if not self.tokens.accepts(request):
            return refusal(401, "Expired or invalid credentials")
        wish = object_in(request)
        if wish is None:
            return refusal(400, "Invalid JSON body")
        return await (self._submit(request, wish) if op == "submit" else self._status(wish))

    def _token(self, request: Request) -> Reply:
        pair = f"{self._credentials.client_id}:{self._credentials.client_secret}"
        basic = "Basic " + base64.b64encode(pair.encode()).decode()
        if request.headers.get("authorization") != basic:
            return json_reply(401, {"error": "invalid_client"})
        form = request.headers.get("content-type", "") == "application/x-www-form-urlencoded"
        if not form or request.body != b"grant_type=client_credentials":
            return json_reply(400, {"error": "unsupported_grant_type"})
        answer = {"token_type": "Bearer", "access_token": self.tokens.issue()}
        return json_reply(200, {**answer, "expires_in": str(int(self.tokens.ttl_s))})

    async def _submit(self, request: Request, wish: dict[str, Any]) -> Answer:
        amount, order = wish.get("amount"), wish.get("order_id")
        texts = all(isinstance(wish.get(key), str) and wish[key] for key in TEXTS)
        if not texts or not is_uuid4(order) or type(amount) is not int or amount < 1:
            return refusal(400, "Missing or invalid body field")
        if wish.get("merchant_key") != self._credentials.merchant_key:
            return refusal(403, "Merchant key refused")
        if order in self._book.payments:
            return refusal(400, "Order id already used")
        reference = str(order)
        scenario = self._script.of_amount(amount)
        step = self._book.submission(reference, scenario)
        pay_token, notif_token = secrets.token_hex(16), secrets.token_hex(16)
        if step.recorded:
            tells = {
                "amount": str(amount),
                "currency": wish["currency"],
                "payer": None,
                "external_id": reference,
            }
            kept = {key: value for key, value in wish.items() if key != "merchant_key"}
            # In the form of the documents: of what is ours it names only the token.
            told = {"status": "SUCCESS", "notif_token": notif_token, "txnid": "MP0"}
            callback = Callback("POST", wish["notif_url"], told)
            kept["pay_token"] = pay_token
            payment = Payment(reference, kept, scenario, tells, callback)
            self._pages[pay_token] = payment
            self._book.record(payment)
        await due(step)
        if step.answer != 201:
            return _unusual(step.answer)
        here = f"http://{request.headers.get('host', '127.0.0.1')}"
        return json_reply(
            201,
            {
                "status": 201,
                "message": "OK",
                "pay_token": pay_token,
                "payment_url": f"{here}{PAGE_PATH}{pay_token}",
                "notif_token": notif_token,
            },
        )

    async def _status(self, wish: dict[str, Any]) -> Answer:
        payment = self._book.payments.get(str(wish.get("order_id")))
        named = (wish.get("amount"), wish.get("pay_token"))
        if payment is None or named != (payment.wish["amount"], payment.wish["pay_token"]):
            return refusal(404, "Transaction not found")
        step = self._book.question(payment)
        await due(step)
        if step.answer != 200:
            return _unusual(step.answer)
        body = {"status": step.status, "order_id": payment.reference}
        if step.amount:
            body["amount"] = step.amount
        if step.status == "SUCCESS":
            body["txnid"] = f"MP{payment.number}"
        if step.status == "FAILED" and isinstance(step.reason, str) and step.reason:
            body["message"] = step.reason
        return json_reply(201, body)

    # The payer.

    def _page(self, request: Request) -> Reply:
        """Opened, or answered with `?answer=approve` or `decline`: then back to the merchant."""
        payment = self._pages.get(request.path.removeprefix(PAGE_PATH))
        if payment is None:
            return Reply(404, b"no such payment", {"Content-Type": "text/plain"})
        over = payment.decided is not None and payment.decided.status != "PENDING"
        match parse_qs(request.query).get("answer"):
            case ["approve"]:
                step, back = StatusStep(status="SUCCESS"), "return_url"
            case ["decline"]:
                step, back = StatusStep(status="FAILED"), "cancel_url"
            case _:
                step, back = StatusStep(status="PENDING"), ""
        if not over and (back or payment.scenario.name == "by_hand"):
            self._book.decide(payment.reference, step)
        if back:
            return Reply(302, headers={"Location": payment.wish[back]})
        text = PAGE.format(
            order=payment.reference,
            amount=payment.wish["amount"],
            currency=html.escape(payment.wish["currency"]),
        )
        return Reply(200, text.encode(), {"Content-Type": "text/html; charset=utf-8"})

    def _operation(self, request: Request) -> tuple[str, str | None]:
        """What a request is for, and the reference that it names."""
        if request.path.startswith(PAGE_PATH):
            payment = self._pages.get(request.path.removeprefix(PAGE_PATH))
            return "page", None if payment is None else payment.reference
        ops = {TOKEN_PATH: "token", SUBMIT_PATH: "submit", STATUS_PATH: "status"}
        op = ops.get(request.path, "other") if request.method == "POST" else "other"
        if op not in ("submit", "status"):
            return op, None
        order = (object_in(request) or {}).get("order_id")
        return op, order if isinstance(order, str) else None


def _unusual(answer: int | Quiet) -> Answer:
    match answer:
        case "none" | "hangup" | "held":
            return quiet(answer)
        case status:
            return refusal(status, "An error occurred")
