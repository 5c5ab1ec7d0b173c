"""MTN Mobile Money, collections: a prompt on the payer's phone (push)."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from vpay_tasks.config import Name, Table, WindowsTable, checked
from vpay_tasks.core import money
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.errors import (
    Configuration,
    InvalidRequest,
    Rail,
    RailCredentials,
    RailMismatch,
    VpayError,
    sanitise,
)
from vpay_tasks.rails.http import HttpAnswer, RailHttp
from vpay_tasks.rails.port import (
    Accepted,
    Capabilities,
    Declined,
    Failed,
    Flow,
    Inquiry,
    NotFound,
    Order,
    Pending,
    StatusAnswer,
    SubmitAnswer,
    Succeeded,
    Unknown,
)
from vpay_tasks.rails.token import Token, TokenCache, fingerprint

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

HeaderText = Annotated[str, Field(pattern=r"^[!-~]{1,256}$")]


class MtnMomoTable(Table):
    """`[rails.mtn_momo]`"""

    base_url: Annotated[str, Field(pattern=r"^https?://[!-~]+$", max_length=512)]
    api_user: HeaderText
    api_key: SecretStr
    subscription_key: SecretStr
    target_environment: Name = "sandbox"
    currencies: tuple[str, ...] = ("EUR",)
    """MTN's own sandbox knows EUR only; a country's environment its own currency only."""
    callback_url: Annotated[str, Field(pattern=r"^https?://[!-~]+$", max_length=512)] | None = None
    payer_message: str = ""
    payee_note: str = ""

    @field_validator("api_key", "subscription_key")
    @classmethod
    def _fit_for_a_header(cls, value: SecretStr) -> SecretStr:
        if not re.fullmatch(r"[!-~]{1,256}", value.get_secret_value()):
            raise ValueError("1 to 256 printable ASCII characters without spaces")
        return value

    @field_validator("currencies")
    @classmethod
    def _known_currencies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(value) - set(money.EXPONENTS))
        if unknown or not value:
            raise ValueError(f"ISO 4217 codes in capitals, at least one; unknown: {unknown}")
        return value

    @model_validator(mode="after")
    def _as_a_whole(self) -> Self:
        sandbox = self.target_environment == "sandbox"
        if sandbox and self.currencies != ("EUR",):
            raise ValueError('currencies: the "sandbox" environment knows EUR only')
        host = urlsplit(self.base_url).hostname or ""
        local = host == "localhost" or host.startswith("127.") or host == "::1"
        if not sandbox and not local and not self.base_url.startswith("https://"):
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
        self._http = RailHttp(CODE, windows, clock=clock)
        self._tokens = TokenCache(self._mint, clock=clock)
        self._identity = fingerprint(
            table.subscription_key.get_secret_value(),
            table.api_user,
            table.api_key.get_secret_value(),
        )
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
        headers = {"X-Reference-Id": order.reference, "Content-Type": "application/json"}
        if self._table.callback_url:  # an empty header is answered with a 400
            headers["X-Callback-Url"] = self._table.callback_url
        try:
            answer = self._authorised(
                "POST",
                "/collection/v1_0/requesttopay",
                headers=headers,
                body=json.dumps(body).encode(),
                deadline=deadline,
            )
            return _of_submit(answer)
        except (Rail, Configuration) as error:
            return Unknown(error)

    def query_status(self, inquiry: Inquiry, *, deadline: float) -> StatusAnswer:
        answer = self._authorised(
            "GET",
            f"/collection/v1_0/requesttopay/{inquiry.reference}",
            headers={},
            deadline=deadline,
        )
        return _of_status(answer, inquiry)

    def parse_callback(self, body: bytes) -> str:
        told = HttpAnswer(200, body).json_object() or {}
        for key in ("referenceId", "externalId"):
            reference = told.get(key)
            if (
                isinstance(reference, str)
                and 1 <= len(reference) <= 128
                and reference.isprintable()
            ):
                return reference
        raise InvalidRequest(f"{CODE}: a callback that names no reference")

    def _authorised(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        deadline: float,
    ) -> HttpAnswer:
        """One call with a token; a 401 mints another one and calls once more, then never."""
        refused: str | None = None
        for _ in range(2):
            token = self._tokens.get(self._identity, refused=refused, deadline=deadline)
            answer = self._http.call(
                method,
                f"{self._base}{path}",
                headers={**self._key(), "Authorization": f"Bearer {token}", **headers},
                body=body,
                deadline=deadline,
            )
            if answer.status != 401:
                break
            refused = token
        if answer.status in (401, 403):
            raise RailCredentials(f"{CODE}: our credentials were refused ({answer.status})")
        return answer

    def _key(self) -> dict[str, str]:
        return {
            "Ocp-Apim-Subscription-Key": self._table.subscription_key.get_secret_value(),
            "X-Target-Environment": self._table.target_environment,
        }

    def _mint(self, deadline: float) -> Token:
        pair = f"{self._table.api_user}:{self._table.api_key.get_secret_value()}"
        answer = self._http.call(
            "POST",
            f"{self._base}/collection/token/",
            headers={
                **self._key(),
                "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
                "Content-Type": "application/json",
            },
            # Without a body: 411. Form-encoded: a page of HTML with 200.
            body=b'{"grant_type":"client_credentials"}',
            deadline=deadline,
        )
        if answer.status in (401, 403):
            raise RailCredentials(f"{CODE}: no token for our credentials ({answer.status})")
        told = answer.json_object() or {}
        value, seconds = told.get("access_token"), told.get("expires_in")
        if (
            answer.status != 200
            or not isinstance(value, str)
            or not re.fullmatch(r"[!-~]{1,8192}", value)
            or isinstance(seconds, bool)
            or not isinstance(seconds, int)
        ):
            raise Rail(f"{CODE}: an answer that is no token ({answer.status})")
        return Token(value, float(max(0, min(seconds, 86_400))))


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
    return Unknown(_unexplained("submit", answer, code))


def _of_status(answer: HttpAnswer, inquiry: Inquiry) -> StatusAnswer:
    code, _ = _error_code(answer)
    if answer.status == 404 and (code == "RESOURCE_NOT_FOUND" or not answer.body.strip()):
        return NotFound()
    if answer.status in (400, 500) and code in MISCONFIGURED:
        raise Configuration(f"{CODE}: the rail refuses our settings: {code}")
    told = answer.json_object()
    if answer.status != 200 or told is None:
        raise _unexplained("status", answer, code)
    word = told.get("status")
    if word not in ("PENDING", "SUCCESSFUL", "FAILED"):
        shown = sanitise(word, 32) if isinstance(word, str) else type(word).__name__
        raise Rail(f"{CODE}: status says {shown!r}, a word that its documents don't know")
    _same_payment(told, inquiry)
    match word:
        case "SUCCESSFUL":
            return Succeeded(_txn_id(told.get("financialTransactionId")))
        case "FAILED":
            reason, raw = _reason(told.get("reason"))
            return Failed(REASONS.get(reason, FailureCode.PROVIDER_ERROR), raw)
        case _:
            return Pending()


def _same_payment(told: Mapping[str, Any], inquiry: Inquiry) -> None:
    """Raise RailMismatch unless the answer is about our reference, amount and currency."""
    wrong = []
    if told.get("externalId") != inquiry.reference:
        wrong.append("reference")
    if told.get("currency") != inquiry.currency:
        wrong.append("currency")
    if not money.same(told.get("amount"), inquiry.amount, inquiry.currency):
        wrong.append("amount")
    if wrong:
        raise RailMismatch(
            f"{CODE}: the answer about {inquiry.reference} has another {' and '.join(wrong)}"
        )


def _txn_id(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**40:
        value = str(value)
    text = sanitise(value, 128).strip() if isinstance(value, str) else ""
    return text or None


def _reason(value: object) -> tuple[str, str]:
    """The code, and the raw words to keep. MTN's schema has a table, its sandbox a string."""
    if isinstance(value, dict):
        code, message = value.get("code"), value.get("message")
        words = [word for word in (code, message) if isinstance(word, str) and word]
        return (code if isinstance(code, str) else ""), ": ".join(words)
    return (value, value) if isinstance(value, str) else ("", "")


def _error_code(answer: HttpAnswer) -> tuple[str, str]:
    return _reason(answer.json_object() or {})


def _unexplained(what: str, answer: HttpAnswer, code: str) -> VpayError:
    said = f" {sanitise(code, 64)}" if code else ""
    return Rail(f"{CODE}: {what} was answered {answer.status}{said}, which settles nothing")
