"""MTN MoMo's collection API, as its sandbox speaks it (spec: token, requesttopay, status)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from vpay_sandbox.callback import Callback
from vpay_sandbox.httpd import Answer, Reply, Request, json_reply
from vpay_sandbox.journal import Journal
from vpay_sandbox.rail_book import Book, Payment, Tokens, due, is_uuid4, object_in, quiet
from vpay_sandbox.rail_book import Sabotage as Sabotage  # noqa: PLC0414 re-exported
from vpay_sandbox.scenarios import Quiet, Script

TOKEN_PATH = "/collection/token/"  # noqa: S105 a path
SUBMIT_PATH = "/collection/v1_0/requesttopay"
HTML_REFUSAL = b"<html><head><title>Request Rejected</title></head><body>Rejected</body></html>"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the rail accepts; the stub's own, worth nothing elsewhere."""

    subscription_key: str = "sandbox-subscription-key"
    api_user: str = "sandbox-api-user"
    api_key: str = "sandbox-api-key"


def refusal(status: int, code: str, message: str = "") -> Reply:
    return json_reply(status, {"code": code, "message": message or code.replace("_", " ").lower()})


class MomoRail:
    """One collection product."""

    def __init__(
        self, journal: Journal, script: Script, book: Book, credentials: Credentials, tokens: Tokens
    ) -> None:
        self._journal = journal
        self._script = script
        self._book = book
        self._credentials = credentials
        self.tokens = tokens

    # The journal.

    def arrived(self, request: Request) -> None:
        op, reference = _operation(request)
        fields: dict[str, Any] = {"n": request.n, "op": op, "method": request.method}
        fields |= {"path": request.path, "reference": reference}
        if op == "submit":
            wish = object_in(request) or {}
            payer = wish.get("payer")
            fields |= {key: wish.get(key) for key in ("amount", "currency", "externalId")}
            fields["payer"] = payer.get("partyId") if isinstance(payer, dict) else None
        self._journal.write("request", **fields)

    def answered(self, request: Request, status: int | None) -> None:
        op, reference = _operation(request)
        self._journal.write("answer", n=request.n, op=op, reference=reference, status=status)

    # The API.

    async def answer(self, request: Request) -> Answer:
        op, reference = _operation(request)
        sent_key = request.headers.get("ocp-apim-subscription-key")
        if sent_key != self._credentials.subscription_key:
            message = "Access denied due to invalid subscription key."
            return json_reply(401, {"statusCode": 401, "message": message})
        match op:
            case "token":
                return self._token(request)
            case "submit":
                return self._check_bearer(request) or await self._submit(request)
            case "status":
                return self._check_bearer(request) or await self._status(reference or "")
            case _:
                return json_reply(404, {"statusCode": 404, "message": "Resource not found"})

    def _token(self, request: Request) -> Reply:
        refused = _refuse_body(request)
        if refused is not None:
            return refused
        pair = f"{self._credentials.api_user}:{self._credentials.api_key}"
        basic = "Basic " + base64.b64encode(pair.encode()).decode()
        if request.headers.get("authorization") != basic:
            return json_reply(401, {"error": "login_failed"})
        if (object_in(request) or {}).get("grant_type") != "client_credentials":
            return json_reply(400, {"error": "unsupported_grant_type"})
        answer = {"access_token": self.tokens.issue(), "token_type": "access_token"}
        return json_reply(200, {**answer, "expires_in": int(self.tokens.ttl_s)})

    def _check_bearer(self, request: Request) -> Reply | None:
        if not self.tokens.accepts(request):
            message = "Unauthorized. Access token is missing, expired or invalid."
            return json_reply(401, {"statusCode": 401, "message": message})
        environment = request.headers.get("x-target-environment", "")
        if environment != "sandbox" and not environment.startswith("mtn"):
            return refusal(500, "NOT_ALLOWED_TARGET_ENVIRONMENT")
        return None

    async def _submit(self, request: Request) -> Answer:
        reference = request.headers.get("x-reference-id", "")
        if not is_uuid4(reference):
            return refusal(400, "INVALID_REFERENCE_ID", "X-Reference-Id is missing or no UUID v4")
        refused = _refuse_body(request)
        if refused is not None:
            return refused
        wish = object_in(request)
        if wish is None or not _is_request_to_pay(wish):
            return refusal(400, "BAD_REQUEST", "amount, currency, externalId, payer are required")
        if request.headers["x-target-environment"] == "sandbox" and wish["currency"] != "EUR":
            return refusal(500, "INVALID_CURRENCY", "Currency not supported.")
        if reference in self._book.payments:
            return refusal(409, "RESOURCE_ALREADY_EXIST", "Duplicated reference id.")
        scenario = self._script.of(wish["payer"]["partyId"])
        step = self._book.submission(reference, scenario)
        if step.recorded:
            tells = {
                "amount": wish["amount"],
                "currency": wish["currency"],
                "payer": wish["payer"]["partyId"],
                "external_id": wish.get("externalId"),
            }
            self._book.record(Payment(reference, wish, scenario, tells, _callback(request, wish)))
        await due(step)
        if step.answer == 202:
            return Reply(202)
        return _unusual(step.answer, step.code)

    async def _status(self, reference: str) -> Answer:
        payment = self._book.payments.get(reference)
        if payment is None:
            return refusal(404, "RESOURCE_NOT_FOUND", "Requested resource was not found.")
        step = self._book.question(payment)
        await due(step)
        if step.answer != 200:
            return _unusual(step.answer, step.code)
        body = dict(payment.wish)
        if step.amount:
            body["amount"] = step.amount
        body["status"] = step.status
        if step.status == "SUCCESSFUL":
            body["financialTransactionId"] = payment.number
        if step.status == "FAILED":
            body["reason"] = step.reason
        return json_reply(200, body)


def _callback(request: Request, wish: dict[str, Any]) -> Callback | None:
    """In the form of the documents, which name no reference but ours. Its word is a rumour."""
    url = request.headers.get("x-callback-url")
    kept = {key: wish.get(key) for key in ("externalId", "amount", "currency", "payer")}
    return None if url is None else Callback("PUT", url, {**kept, "status": "SUCCESSFUL"})


def _operation(request: Request) -> tuple[str, str | None]:
    """What a request is for, and the reference that it names."""
    path, method = request.path.rstrip("/"), request.method
    if path == TOKEN_PATH.rstrip("/") and method == "POST":
        return "token", None
    if path == SUBMIT_PATH and method == "POST":
        return "submit", request.headers.get("x-reference-id")
    if path.startswith(SUBMIT_PATH + "/") and method == "GET":
        return "status", path.removeprefix(SUBMIT_PATH + "/")
    return "other", None


def _refuse_body(request: Request) -> Reply | None:
    """The gateway before the API: it wants a body, and is baffled by a form."""
    if not request.body:
        return Reply(411, b"Length Required", {"Content-Type": "text/html"})
    if "x-www-form-urlencoded" in request.headers.get("content-type", ""):
        return Reply(200, HTML_REFUSAL, {"Content-Type": "text/html"})
    return None


def _is_request_to_pay(wish: dict[str, Any]) -> bool:
    payer = wish.get("payer")
    texts = [wish.get(key) for key in ("amount", "currency", "externalId")]
    texts.append(payer.get("partyId") if isinstance(payer, dict) else None)
    return all(isinstance(text, str) and text for text in texts)


def _unusual(answer: int | Quiet, code: str) -> Answer:
    match answer:
        case "none" | "hangup" | "held":
            return quiet(answer)
        case 401:
            return json_reply(401, {"statusCode": 401, "message": "Unauthorized."})
        case status:
            return refusal(status, code) if code else Reply(status, json.dumps({}).encode())
