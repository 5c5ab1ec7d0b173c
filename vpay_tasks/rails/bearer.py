"""Calls under a bearer token: minted when one is needed, once more after a 401, then never."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from vpay_tasks.config import WindowsTable
from vpay_tasks.errors import Rail, RailCredentials
from vpay_tasks.rails.http import HttpAnswer, RailHttp
from vpay_tasks.rails.token import Token, TokenCache

LONGEST_S: Final = 86_400
"""A token is used for a day at most, whatever its rail says: a longer one would outlive the
credentials that it stands for by more than a day."""


@dataclass(frozen=True)
class TokenRequest:
    """How a rail wants to be asked for a token."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class BearerHttp:
    """Requests to one rail under one set of credentials. Safe to share between threads."""

    def __init__(
        self,
        rail: str,
        windows: WindowsTable,
        request: TokenRequest,
        identity: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rail = rail
        self._request = request
        self._identity = identity
        self._http = RailHttp(rail, windows, clock=clock)
        self._tokens = TokenCache(self._mint, clock=clock)

    def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        deadline: float,
    ) -> HttpAnswer:
        """One call with a token. Raises Rail without an HTTP answer, RailCredentials when our
        credentials were refused (a 401 after the second token, or a 403)."""
        refused: str | None = None
        for _ in range(2):
            token = self._tokens.get(self._identity, refused=refused, deadline=deadline)
            answer = self._http.call(
                method,
                url,
                headers={"Authorization": f"Bearer {token}", **headers},
                body=body,
                deadline=deadline,
            )
            if answer.status != 401:
                break
            refused = token
        if answer.status in (401, 403):
            raise RailCredentials(f"{self._rail}: our credentials were refused ({answer.status})")
        return answer

    def _mint(self, deadline: float) -> Token:
        wish = self._request
        answer = self._http.call(
            "POST", wish.url, headers=wish.headers, body=wish.body, deadline=deadline
        )
        if answer.status in (401, 403):
            raise RailCredentials(f"{self._rail}: no token for our credentials ({answer.status})")
        told = answer.json_object() or {}
        value, seconds = told.get("access_token"), _seconds(told.get("expires_in"))
        if (
            answer.status != 200
            or not isinstance(value, str)
            or not re.fullmatch(r"[!-~]{1,8192}", value)
            or seconds is None
        ):
            raise Rail(f"{self._rail}: an answer that is no token ({answer.status})")
        return Token(value, float(max(0, min(seconds, LONGEST_S))))


def basic(user: str, password: str) -> str:
    """The value of an `Authorization` header."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _seconds(value: object) -> int | None:
    # Some rails write the number as a string.
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
