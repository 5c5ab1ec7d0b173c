"""A payer's merchant by hand: the rail's protocol spoken with the standard library alone."""

from __future__ import annotations

import base64
import http.client
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from vpay_sandbox.momo import SUBMIT_PATH, TOKEN_PATH, Credentials

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Got:
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def call(
    url: str, method: str, path: str, headers: dict[str, str], body: bytes | None = None
) -> Got:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=10)
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return Got(answer.status, answer.read())
    finally:
        connection.close()


class Payer:
    """One set of credentials against one rail."""

    def __init__(self, url: str, credentials: Credentials | None = None) -> None:
        self.url = url
        self.credentials = credentials or Credentials()
        self.key = {"Ocp-Apim-Subscription-Key": self.credentials.subscription_key}
        pair = f"{self.credentials.api_user}:{self.credentials.api_key}"
        self.basic = {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
        self.bearer: dict[str, str] = {}
        self.extra: dict[str, str] = {}  # sent over what the call needs

    def token(self) -> Got:
        got = call(
            self.url,
            "POST",
            TOKEN_PATH,
            {**self.key, **self.basic, **JSON},
            b'{"grant_type":"client_credentials"}',
        )
        if got.status == 200:
            self.bearer = {"Authorization": f"Bearer {got.json()['access_token']}"}
        return got

    def headers(self, reference: str | None = None) -> dict[str, str]:
        named = {} if reference is None else {"X-Reference-Id": reference}
        return {**self.key, **self.bearer, "X-Target-Environment": "sandbox", **named, **self.extra}

    def submit(
        self, payer: str, reference: str | None = None, changes: Mapping[str, object] | None = None
    ) -> tuple[str, Got]:
        reference = reference or str(uuid.uuid4())
        wish = {
            "amount": "10.00",
            "currency": "EUR",
            "externalId": reference,
            "payer": {"partyIdType": "MSISDN", "partyId": payer},
            "payerMessage": "order 1",
            "payeeNote": "order 1",
            **(changes or {}),
        }
        body = json.dumps(wish).encode()
        return reference, call(
            self.url, "POST", SUBMIT_PATH, {**self.headers(reference), **JSON}, body
        )

    def ask(self, reference: str) -> Got:
        return call(self.url, "GET", f"{SUBMIT_PATH}/{reference}", self.headers())
