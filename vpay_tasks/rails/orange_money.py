"""Orange Money, web payment: a page of the rail's that the payer is sent to (redirect)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Self
from urllib.parse import urljoin

from pydantic import model_validator

from vpay_tasks.config import WindowsTable, checked
from vpay_tasks.core import money
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.errors import Configuration, Rail
from vpay_tasks.rails import reading
from vpay_tasks.rails.bearer import BearerHttp, TokenRequest, basic
from vpay_tasks.rails.http import HttpAnswer
from vpay_tasks.rails.port import (
    CALLBACK_KEY,
    Accepted,
    Capabilities,
    Failed,
    Flow,
    Inquiry,
    Named,
    Order,
    Pending,
    StatusAnswer,
    SubmitAnswer,
    Succeeded,
    Unknown,
)
from vpay_tasks.rails.tables import Currencies, HeaderSecret, HeaderText, Url, private
from vpay_tasks.rails.token import fingerprint
from vpay_tasks.tables import Table

CODE: Final = "orange_money"

FINE: Final = (200, 201)
"""The documents' examples answer with 201 where nothing is created, too."""

PAGE: Final = re.compile(r"https?://[!-~]{1,2000}")
"""Within what charges.redirect_url takes: a longer one would lose the whole answer."""


class OrangeMoneyTable(Table):
    """`[rails.orange_money]`"""

    base_url: Url
    """Of the country, as in https://api.orange.com/orange-money-webpay/cm; tokens come from
    the same host."""
    client_id: HeaderText
    client_secret: HeaderSecret
    merchant_key: HeaderSecret
    notif_url: Url
    currencies: Currencies
    lang: Literal["fr", "en"] = "fr"

    @model_validator(mode="after")
    def _as_a_whole(self) -> Self:
        if not private(self.base_url):
            raise ValueError("base_url: keys travel in headers, so https:// it must be")
        return self


def from_settings(
    raw: Mapping[str, Any], windows: WindowsTable, faults: list[str]
) -> OrangeMoney | None:
    """The adapter, or None with every fault of its table appended to `faults`."""
    table = checked(OrangeMoneyTable, raw, f"rails.{CODE}", faults)
    return None if table is None else OrangeMoney(table, windows)


class OrangeMoney:
    """The rail's port (port.py)."""

    code = CODE
    flow = Flow.REDIRECT

    def __init__(
        self,
        table: OrangeMoneyTable,
        windows: WindowsTable,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._base = table.base_url.rstrip("/")
        user, key = table.client_id, table.client_secret.get_secret_value()
        token = TokenRequest(
            urljoin(self._base, "/oauth/v2/token"),
            headers={
                "Authorization": basic(user, key),
                "Content-Type": "application/x-www-form-urlencoded",
            },
            body=b"grant_type=client_credentials",
        )
        self._http = BearerHttp(CODE, windows, token, fingerprint(user, key), clock=clock)
        self.capabilities = Capabilities(
            currencies=frozenset(table.currencies),
            whole_amounts=True,
            needs_payer=False,
            needs_return_url=True,
        )

    def __repr__(self) -> str:
        return f"OrangeMoney({self._base})"

    def submit(self, order: Order, *, deadline: float) -> SubmitAnswer:
        if not order.return_url:
            raise Configuration(f"{CODE}: without a return_url the payer could not come back")
        wish = {
            "merchant_key": self._table.merchant_key.get_secret_value(),
            "currency": order.currency,
            "order_id": order.reference,
            "amount": money.whole(order.amount, order.currency),
            "return_url": order.return_url,
            "cancel_url": order.return_url,
            "notif_url": self._table.notif_url,
            "lang": self._table.lang,
        }
        try:
            return self._of_submit(self._post("/v1/webpayment", wish, deadline))
        except (Rail, Configuration) as error:
            return Unknown(error)

    def query_status(self, inquiry: Inquiry, *, deadline: float) -> StatusAnswer:
        pay_token = inquiry.key_material.get("pay_token")
        if not pay_token:
            raise Rail(f"{CODE}: {inquiry.reference} has no pay_token, so it can't be asked for")
        wish = {
            "order_id": inquiry.reference,
            "amount": money.whole(inquiry.amount, inquiry.currency),
            "pay_token": pay_token,
        }
        return _of_status(self._post("/v1/transactionstatus", wish, deadline), inquiry)

    def parse_callback(self, body: bytes) -> Named:
        # The documents' example names no order, only the token of its acceptance.
        return reading.named_in(CODE, body, ("order_id",), said_back="notif_token")

    def _post(self, path: str, wish: Mapping[str, Any], deadline: float) -> HttpAnswer:
        return self._http.call(
            "POST",
            f"{self._base}{path}",
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            body=json.dumps(wish).encode(),
            deadline=deadline,
        )

    def _of_submit(self, answer: HttpAnswer) -> SubmitAnswer:
        told = answer.json_object() or {}
        page, keys = told.get("payment_url"), _key_material(told)
        if (
            answer.status not in FINE
            # Without the one nobody can pay, without the other nobody can ask.
            or "pay_token" not in keys
            or not isinstance(page, str)
            or not PAGE.fullmatch(page)
        ):
            return Unknown(reading.unexplained(CODE, "submit", answer))
        if not private(page) and private(self._base):
            return Unknown(Rail(f"{CODE}: the payer would be sent to a page without TLS"))
        return Accepted(key_material=keys, redirect_url=page)


def _key_material(told: Mapping[str, Any]) -> dict[str, str]:
    keys = {}
    pay_token = told.get("pay_token")
    if isinstance(pay_token, str) and reading.SECRET.fullmatch(pay_token):
        keys["pay_token"] = pay_token
    if (key := reading.callback_key(told.get("notif_token"))) is not None:
        keys[CALLBACK_KEY] = key
    return keys


def _of_status(answer: HttpAnswer, inquiry: Inquiry) -> StatusAnswer:
    told = answer.json_object()
    if answer.status not in FINE or told is None:
        raise reading.unexplained(CODE, "status", answer)
    word = told.get("status")
    if word not in ("INITIATED", "PENDING", "SUCCESS", "EXPIRED", "FAILED"):
        raise reading.unknown_word(CODE, word)
    # Amount and currency are part of the question and not of a documented answer; one that
    # names them all the same must name ours.
    reading.same_payment(
        CODE,
        inquiry,
        reference=told.get("order_id"),
        currency=told.get("currency", reading.NAMED_NOWHERE),
        amount=told.get("amount", reading.NAMED_NOWHERE),
    )
    match word:
        case "SUCCESS":
            return Succeeded(reading.txn_id(told.get("txnid")))
        case "EXPIRED":
            return Failed(FailureCode.PAYER_TIMEOUT, word)
        case "FAILED":
            return Failed(FailureCode.PROVIDER_ERROR, _reason(told))
        case _:
            return Pending()


def _reason(told: Mapping[str, Any]) -> str:
    message = told.get("message")
    return f"FAILED: {message}" if isinstance(message, str) and message else "FAILED"
