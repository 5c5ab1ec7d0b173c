"""MTN MoMo's collection API, as its sandbox speaks it (spec: token, requesttopay, status)."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

from vpay_sandbox.httpd import Answer, Hangup, Reply, Request, Silence, json_reply
from vpay_sandbox.journal import Journal
from vpay_sandbox.scenarios import Quiet, Scenario, Script, StatusStep, status_step, submit_step

TOKEN_PATH = "/collection/token/"  # noqa: S105 a path
SUBMIT_PATH = "/collection/v1_0/requesttopay"
HTML_REFUSAL = b"<html><head><title>Request Rejected</title></head><body>Rejected</body></html>"

Sabotage = Literal["two-effects"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the rail accepts; the stub's own, worth nothing elsewhere."""

    subscription_key: str = "sandbox-subscription-key"
    api_user: str = "sandbox-api-user"
    api_key: str = "sandbox-api-key"


@dataclass(slots=True)
class Payment:
    """What the rail has under one reference."""

    reference: str
    wish: dict[str, Any]
    scenario: Scenario
    since: float = field(default_factory=time.monotonic)
    questions: int = 0
    moved: bool = False
    decided: StatusStep | None = None


def refusal(status: int, code: str, message: str = "") -> Reply:
    return json_reply(status, {"code": code, "message": message or code.replace("_", " ").lower()})


class MomoRail:
    """One collection product. Every effect is journalled before the answer that tells of it."""

    def __init__(
        self,
        journal: Journal,
        script: Script,
        *,
        credentials: Credentials | None = None,
        token_ttl_s: float = 3600.0,
        sabotage: Sabotage | None = None,
    ) -> None:
        self._journal = journal
        self._script = script
        self._credentials = credentials or Credentials()
        self._token_ttl_s = token_ttl_s
        self._sabotage = sabotage
        self._tokens: dict[str, float] = {}
        self._payments: dict[str, Payment] = {}
        self._submissions: dict[str, int] = {}

    # The journal.

    def arrived(self, request: Request) -> None:
        op, reference = _operation(request)
        fields: dict[str, Any] = {"n": request.n, "op": op, "method": request.method}
        fields |= {"path": request.path, "reference": reference}
        if op == "submit":
            wish = _body(request) or {}
            payer = wish.get("payer")
            fields |= {key: wish.get(key) for key in ("amount", "currency", "externalId")}
            fields["payer"] = payer.get("partyId") if isinstance(payer, dict) else None
        self._journal.write("request", **fields)

    def answered(self, request: Request, status: int | None) -> None:
        op, reference = _operation(request)
        self._journal.write("answer", n=request.n, op=op, reference=reference, status=status)

    def _effect(self, effect: str, payment: Payment, **more: Any) -> None:
        wish = payment.wish
        self._journal.write(
            "effect",
            effect=effect,
            reference=payment.reference,
            scenario=payment.scenario.name,
            amount=wish["amount"],
            currency=wish["currency"],
            payer=wish["payer"]["partyId"],
            external_id=wish.get("externalId"),
            **more,
        )

    def close(self) -> None:
        self._journal.close()

    # Control.

    def command(self, verb: str, wish: dict[str, Any]) -> dict[str, Any] | None:
        match verb:
            case "expire_tokens":
                return {"expired": self.expire_tokens()}
            case "decide":
                step = StatusStep(status=wish["status"], reason=wish.get("reason", ""))
                self.decide(wish["reference"], step)
                return {}
            case _:
                return None

    def expire_tokens(self) -> int:
        """Every token handed out so far is refused from now on. Returns how many."""
        count = len(self._tokens)
        self._tokens.clear()
        return count

    def decide(self, reference: str, step: StatusStep) -> None:
        """From now on this payment is answered so, whatever its scenario says; KeyError when the
        rail does not have it."""
        self._payments[reference].decided = step

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
        if (_body(request) or {}).get("grant_type") != "client_credentials":
            return json_reply(400, {"error": "unsupported_grant_type"})
        token = secrets.token_urlsafe(24)
        self._tokens[token] = time.monotonic() + self._token_ttl_s
        answer = {"access_token": token, "token_type": "access_token"}
        return json_reply(200, {**answer, "expires_in": int(self._token_ttl_s)})

    def _check_bearer(self, request: Request) -> Reply | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or self._tokens.get(token, 0.0) <= time.monotonic():
            message = "Unauthorized. Access token is missing, expired or invalid."
            return json_reply(401, {"statusCode": 401, "message": message})
        environment = request.headers.get("x-target-environment", "")
        if environment != "sandbox" and not environment.startswith("mtn"):
            return refusal(500, "NOT_ALLOWED_TARGET_ENVIRONMENT")
        return None

    async def _submit(self, request: Request) -> Answer:
        reference = request.headers.get("x-reference-id", "")
        if not _is_uuid4(reference):
            return refusal(400, "INVALID_REFERENCE_ID", "X-Reference-Id is missing or no UUID v4")
        refused = _refuse_body(request)
        if refused is not None:
            return refused
        wish = _body(request)
        if wish is None or not _is_request_to_pay(wish):
            return refusal(400, "BAD_REQUEST", "amount, currency, externalId, payer are required")
        if request.headers["x-target-environment"] == "sandbox" and wish["currency"] != "EUR":
            return refusal(500, "INVALID_CURRENCY", "Currency not supported.")
        if reference in self._payments:
            return refusal(409, "RESOURCE_ALREADY_EXIST", "Duplicated reference id.")
        scenario = self._script.of(wish["payer"]["partyId"])
        nth = self._submissions.get(reference, 0)
        self._submissions[reference] = nth + 1
        step = submit_step(scenario, nth)
        if step.recorded:
            payment = self._payments[reference] = Payment(reference, wish, scenario)
            self._effect("prompt", payment)
        await asyncio.sleep(step.slow_ms / 1000)
        if step.answer == 202:
            return Reply(202)
        return _unusual(step.answer, step.code)

    async def _status(self, reference: str) -> Answer:
        payment = self._payments.get(reference)
        if payment is None:
            return refusal(404, "RESOURCE_NOT_FOUND", "Requested resource was not found.")
        step = self._step(payment)
        if step.answer == 200 and step.status == "SUCCESSFUL" and not payment.moved:
            self._move(payment, step)
        await asyncio.sleep(step.slow_ms / 1000)
        if step.answer != 200:
            return _unusual(step.answer, step.code)
        body = dict(payment.wish)
        if step.amount:
            body["amount"] = step.amount
        body["status"] = step.status
        if step.status == "SUCCESSFUL":
            # A payment keeps its number however often it is asked for.
            body["financialTransactionId"] = str(uuid.UUID(reference).int % 10**10)
        if step.status == "FAILED":
            body["reason"] = step.reason
        return json_reply(200, body)

    def _step(self, payment: Payment) -> StatusStep:
        if payment.decided is not None:
            return payment.decided
        age_s = time.monotonic() - payment.since
        step = status_step(payment.scenario, payment.questions, age_s)
        if step.for_s <= 0:
            payment.questions += 1
        return step

    def _move(self, payment: Payment, step: StatusStep) -> None:
        payment.moved = True
        more = {"moved_amount": step.amount or payment.wish["amount"]}
        self._effect("moved", payment, **more)
        if self._sabotage == "two-effects":
            self._sabotage = None  # once is enough to be found
            self._effect("moved", payment, **more)


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


def _body(request: Request) -> dict[str, Any] | None:
    try:
        body = request.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


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


def _is_uuid4(text: str) -> bool:
    try:
        return uuid.UUID(text).version == 4 and len(text) == 36
    except ValueError:
        return False


def _unusual(answer: int | Quiet, code: str) -> Answer:
    match answer:
        case "none":
            return Silence()
        case "hangup":
            return Hangup()
        case 401:
            return json_reply(401, {"statusCode": 401, "message": "Unauthorized."})
        case status:
            return refusal(status, code) if code else Reply(status, json.dumps({}).encode())
