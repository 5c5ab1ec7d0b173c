"""MTN Mobile Money, collections: a prompt on the payer's phone (push)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from pydantic import model_validator

from vpay_tasks.config import WindowsTable, checked
from vpay_tasks.core import money
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.errors import Configuration, Rail
from vpay_tasks.rails import reading
from vpay_tasks.rails.bearer import BearerHttp, TokenRequest, basic
from vpay_tasks.rails.http import HttpAnswer
from vpay_tasks.rails.port import (
    Accepted,
    Capabilities,
    Declined,
    Failed,
    Flow,
    Inquiry,
    Named,
    NotFound,
    Order,
    Pending,
    StatusAnswer,
    SubmitAnswer,
    Succeeded,
    Unknown,
)
from vpay_tasks.rails.tables import Currencies, HeaderSecret, HeaderText, Url, private
from vpay_tasks.rails.token import fingerprint
from vpay_tasks.tables import Name, Table

CODE: Final = "mtn_momo"

REASONS: Final[dict[str, FailureCode]] = {
    "NOT_ENOUGH_FUNDS": FailureCode.INSUFFICIENT_FUNDS,
    "COULD_NOT_PERFORM_TRANSACTION": FailureCode.PAYER_TIMEOUT,
    "EXPIRED": FailureCode.PAYER_TIMEOUT,
    "PAYMENT_NOT_APPROVED": FailureCode.PAYER_DECLINED,
    "APPROVAL_REJECTED": FailureCode.PAYER_DECLINED,
    "PAYER_NOT_FOUND": FailureCode.INVALID_PAYER,
    "PAYER_LIMIT_REACHED": FailureCode.PAYER_LIMIT_REACHED,
    "SENDER_ACCOUNT_NOT_ACTIVE": FailureCode.PAYER_ACCOUNT_BLOCKED,
    "PAYEE_NOT_FOUND": FailureCode.INVALID_PAYEE,
    "PAYEE_NOT_ALLOWED_TO_RECEIVE": FailureCode.PAYEE_ACCOUNT_BLOCKED,
    "NOT_ALLOWED": FailureCode.PROVIDER_ACCOUNT_BLOCKED,
    "SERVICE_UNAVAILABLE": FailureCode.PROVIDER_UNAVAILABLE,
}
"""Anything else is provider_error."""

SUBMIT_DECLINES: Final = frozenset(REASONS) - {"SERVICE_UNAVAILABLE"}
"""What a 400 to a submit must say to be a refusal. A rail that is unavailable has not said
that it doesn't have the payment."""

MISCONFIGURED: Final = frozenset(
    {"INVALID_CURRENCY", "NOT_ALLOWED_TARGET_ENVIRONMENT", "INVALID_CALLBACK_URL_HOST"}
)
"""Codes about our settings, sent with 400 or 500: no retry helps."""


class MtnMomoTable(Table):
    """`[rails.mtn_momo]`"""

    base_url: Url
    api_user: HeaderText
    api_key: HeaderSecret
    subscription_key: HeaderSecret
    target_environment: Name = "sandbox"
    currencies: Currencies = ("EUR",)
    """MTN's own sandbox knows EUR only; a country's environment its own currency only."""
    callback_url: Url | None = None
    payer_message: str = ""
    payee_note: str = ""

    @model_validator(mode="after")
    def _as_a_whole(self) -> Self:
        sandbox = self.target_environment == "sandbox"
        if sandbox and self.currencies != ("EUR",):
            raise ValueError('currencies: the "sandbox" environment knows EUR only')
        if not sandbox and not private(self.base_url):
            raise ValueError("base_url: keys travel in headers, so https:// it must be")
        return self


def from_settings(
    raw: Mapping[str, Any], windows: WindowsTable, faults: list[str]
) -> MtnMomo | None:
    """The adapter, or None with every fault of its table appended to `faults`."""
    table = checked(MtnMomoTable, raw, f"rails.{CODE}", faults)
    return None if table is None else MtnMomo(table, windows)


class MtnMomo:
    """The rail's port (port.py)."""

    code = CODE
    flow = Flow.PUSH

    def __init__(
        self,
        table: MtnMomoTable,
        windows: WindowsTable,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._base = table.base_url.rstrip("/")
        user, key = table.api_user, table.api_key.get_secret_value()
        subscription = table.subscription_key.get_secret_value()
        self._headers = {
            "Ocp-Apim-Subscription-Key": subscription,
            "X-Target-Environment": table.target_environment,
        }
        token = TokenRequest(
            f"{self._base}/collection/token/",
            headers={
                **self._headers,
                "Authorization": basic(user, key),
                "Content-Type": "application/json",
            },
            # Without a body: 411. Form-encoded: a page of HTML with 200.
            body=b'{"grant_type":"client_credentials"}',
        )
        identity = fingerprint(subscription, user, key)
        self._http = BearerHttp(CODE, windows, token, identity, clock=clock)
        self.capabilities = Capabilities(
            currencies=frozenset(table.currencies),
            whole_amounts=False,
            needs_payer=True,
            needs_return_url=False,
        )

    def __repr__(self) -> str:
        return f"MtnMomo({self._table.target_environment})"

    def submit(self, order: Order, *, deadline: float) -> SubmitAnswer:
        body = {
            "amount": money.major_text(order.amount, order.currency),
            "currency": order.currency,
            "externalId": order.reference,
            "payer": {"partyIdType": "MSISDN", "partyId": order.payer},
            "payerMessage": plain(self._table.payer_message),
            "payeeNote": plain(self._table.payee_note),
        }
        headers = {
            **self._headers,
            "X-Reference-Id": order.reference,
            "Content-Type": "application/json",
        }
        if self._table.callback_url:  # an empty header is answered with a 400
            headers["X-Callback-Url"] = self._table.callback_url
        try:
            answer = self._http.call(
                "POST",
                f"{self._base}/collection/v1_0/requesttopay",
                headers=headers,
                body=json.dumps(body).encode(),
                deadline=deadline,
            )
            return _of_submit(answer)
        except (Rail, Configuration) as error:
            return Unknown(error)

    def query_status(self, inquiry: Inquiry, *, deadline: float) -> StatusAnswer:
        answer = self._http.call(
            "GET",
            f"{self._base}/collection/v1_0/requesttopay/{inquiry.reference}",
            headers=self._headers,
            deadline=deadline,
        )
        return _of_status(answer, inquiry)

    def parse_callback(self, body: bytes) -> Named:
        return reading.named_in(CODE, body, ("referenceId", "externalId"))


def plain(text: str) -> str:
    """`text` as MTN takes notes: ASCII, no markup, at most 160 characters."""
    ascii_only = text.encode("ascii", "ignore").decode("ascii")
    return "".join(c for c in ascii_only if c.isprintable() and c not in "&<>")[:160]


def _of_submit(answer: HttpAnswer) -> SubmitAnswer:
    code, raw = _error_code(answer)
    # An empty body, so never parsed. A 202 that says something is nobody's document.
    if answer.status == 202 and not answer.body.strip():
        return Accepted()
    if answer.status == 409 and code == "RESOURCE_ALREADY_EXIST":
        return Accepted()
    if answer.status in (400, 500) and code in MISCONFIGURED:
        return Unknown(Configuration(f"{CODE}: the rail refuses our settings: {code}"))
    if answer.status == 400 and code in SUBMIT_DECLINES:
        return Declined(REASONS[code], raw)
    return Unknown(reading.unexplained(CODE, "submit", answer, code))


def _of_status(answer: HttpAnswer, inquiry: Inquiry) -> StatusAnswer:
    code, _ = _error_code(answer)
    if answer.status == 404 and (code == "RESOURCE_NOT_FOUND" or not answer.body.strip()):
        return NotFound()
    if answer.status in (400, 500) and code in MISCONFIGURED:
        raise Configuration(f"{CODE}: the rail refuses our settings: {code}")
    told = answer.json_object()
    if answer.status != 200 or told is None:
        raise reading.unexplained(CODE, "status", answer, code)
    word = told.get("status")
    if word not in ("PENDING", "SUCCESSFUL", "FAILED"):
        raise reading.unknown_word(CODE, word)
    reading.same_payment(
        CODE,
        inquiry,
        reference=told.get("externalId"),
        currency=told.get("currency"),
        amount=told.get("amount"),
    )
    match word:
        case "SUCCESSFUL":
            return Succeeded(reading.txn_id(told.get("financialTransactionId")))
        case "FAILED":
            reason, raw = _reason(told.get("reason"))
            return Failed(REASONS.get(reason, FailureCode.PROVIDER_ERROR), raw)
        case _:
            return Pending()


def _reason(value: object) -> tuple[str, str]:
    """The code, and the raw words to keep. MTN's schema has a table, its sandbox a string."""
    if isinstance(value, dict):
        code, message = value.get("code"), value.get("message")
        words = [word for word in (code, message) if isinstance(word, str) and word]
        return (code if isinstance(code, str) else ""), ": ".join(words)
    return (value, value) if isinstance(value, str) else ("", "")


def _error_code(answer: HttpAnswer) -> tuple[str, str]:
    return _reason(answer.json_object() or {})
