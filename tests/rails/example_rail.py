"""A rail as somebody else would write it: this one file, and a table in the settings.

    [rails.parrot]
    factory = "tests.rails.example_rail:from_settings"
    base_url = "https://parrot.example"
    api_key = "${PARROT_KEY}"

Parrot is made up: `POST /payments` asks a payer by phone, `GET /payments/<id>` says what
became of it; amounts are minor units; one key in a header stands for us.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from vpay_tasks.config import WindowsTable, checked
from vpay_tasks.core import money
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.errors import InvalidRequest, Rail, RailCredentials, RailMismatch
from vpay_tasks.rails import reading
from vpay_tasks.rails.http import HttpAnswer, RailHttp
from vpay_tasks.rails.port import (
    Accepted,
    ByReference,
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
from vpay_tasks.tables import Table

CODE = "parrot"
REFUSALS = {"no money": FailureCode.INSUFFICIENT_FUNDS, "no account": FailureCode.INVALID_PAYER}


class ParrotTable(Table):
    base_url: str
    api_key: SecretStr


def from_settings(
    raw: Mapping[str, Any], windows: WindowsTable, faults: list[str]
) -> Parrot | None:
    table = checked(ParrotTable, raw, f"rails.{CODE}", faults)
    return None if table is None else Parrot(table, windows)


class Parrot:
    code = CODE
    flow = Flow.PUSH
    capabilities = Capabilities(
        currencies=frozenset({"EUR"}),
        whole_amounts=False,
        needs_payer=True,
        needs_return_url=False,
    )

    def __init__(self, table: ParrotTable, windows: WindowsTable) -> None:
        self._table = table
        self._http = RailHttp(CODE, windows)

    def submit(self, order: Order, *, deadline: float) -> SubmitAnswer:
        wish = {
            "id": order.reference,
            "amount": order.amount,
            "currency": order.currency,
            "phone": order.payer,
        }
        try:
            answer = self._call("POST", "/payments", deadline, json.dumps(wish).encode())
        except Rail as error:
            return Unknown(error)
        reason = (answer.json_object() or {}).get("reason")
        match answer.status:
            case 201 | 409:  # 409: it has this id already
                return Accepted()
            case 422 if isinstance(reason, str) and reason in REFUSALS:
                return Declined(REFUSALS[reason], reason)
            case status:
                return Unknown(Rail(f"{CODE}: submit was answered {status}"))

    def query_status(self, inquiry: Inquiry, *, deadline: float) -> StatusAnswer:
        answer = self._call("GET", f"/payments/{inquiry.reference}", deadline)
        told = answer.json_object()
        if answer.status == 404 and told == {"error": "unknown id"}:
            return NotFound()
        if answer.status != 200 or told is None:
            raise Rail(f"{CODE}: status was answered {answer.status}")
        state = told.get("state")
        if state not in ("waiting", "paid", "refused"):
            raise reading.unknown_word(CODE, state)
        ours = told.get("id") == inquiry.reference and told.get("currency") == inquiry.currency
        if not ours or money.read_back(told.get("amount")) != inquiry.amount:
            raise RailMismatch(f"{CODE}: the answer is about another payment")
        if state == "waiting":
            return Pending()
        if state == "paid":
            return Succeeded(None)
        reason = told.get("reason")
        words = reason if isinstance(reason, str) else ""
        return Failed(REFUSALS.get(words, FailureCode.PROVIDER_ERROR), words)

    def parse_callback(self, body: bytes) -> Named:
        found = (HttpAnswer(200, body).json_object() or {}).get("id")
        if not isinstance(found, str) or not found.isprintable() or not 1 <= len(found) <= 128:
            raise InvalidRequest(f"{CODE}: a callback without an id")
        return ByReference(found)

    def _call(
        self, method: str, path: str, deadline: float, body: bytes | None = None
    ) -> HttpAnswer:
        key = self._table.api_key.get_secret_value()
        answer = self._http.call(
            method,
            self._table.base_url + path,
            headers={"X-Api-Key": key, "Content-Type": "application/json"},
            body=body,
            deadline=deadline,
        )
        if answer.status in (401, 403):
            raise RailCredentials(f"{CODE}: our key was refused")
        return answer
