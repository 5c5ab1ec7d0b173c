"""HTTP towards rails: the only user of requests.

No session: so no redirect is followed, no proxy or netrc of the environment used, no
cookie kept. One deadline ends a call whatever the peer does, dripping headers included.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from vpay_tasks import telemetry
from vpay_tasks.config import WindowsTable
from vpay_tasks.errors import Rail

BODY_MAX: Final = 256 * 1024
"""Bytes of an answer that are read. A rail's longest documented one has two thousand."""


@dataclass(frozen=True)
class HttpAnswer:
    """What came back. The body stays out of the repr: it may name a payer or hold a token."""

    status: int
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """The body as JSON, or None for what is none. Numbers with a point are Decimals:
        a float would have lost what was written."""
        try:
            return json.loads(self.body, parse_float=Decimal, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None

    def json_object(self) -> dict[str, Any] | None:
        value = self.json()
        return value if isinstance(value, dict) else None


class RailHttp:
    """Requests to one rail. Safe to share between threads; connections are kept."""

    def __init__(
        self, rail: str, windows: WindowsTable, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rail = rail
        self._connect = windows.rail_connect
        self._request = windows.rail_request
        self._clock = clock
        self._adapter = _Adapter(pool_maxsize=32)

    def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        deadline: float,
    ) -> HttpAnswer:
        """One request and its whole answer. Raises Rail for anything but an HTTP answer;
        neither URL parameters, headers nor bodies ever stand in its text."""
        left = min(deadline - self._clock(), self._request)
        where = f"{self._rail}: {method} {urlsplit(url).path}"
        if left <= 0:
            raise Rail(f"{where}: no time was left to ask")
        telemetry.count("rail_calls")
        with _ending_after(left) as over:
            try:
                answer = self._exchange(method, url, dict(headers), body, left)
            except _TooLarge:
                raise Rail(f"{where}: the answer is larger than {BODY_MAX} bytes") from None
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                # Only the class's name: the text may quote a header's value.
                what = "no answer in time" if over.is_set() else type(error).__name__
                raise Rail(f"{where}: {what}") from None
            if over.is_set():
                # Cut off by us, a body without a length looks whole.
                raise Rail(f"{where}: no answer in time")
            return answer

    def _exchange(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None, left: float
    ) -> HttpAnswer:
        request = requests.Request(
            method, url, headers={"Accept-Encoding": "identity", **headers}, data=body
        ).prepare()
        response = self._adapter.send(
            request, stream=True, timeout=(min(self._connect, left), left), verify=True
        )
        with response:
            received = bytearray()
            # Undecoded: a small body that unpacks to gigabytes stays small.
            for chunk in response.raw.stream(16 * 1024, decode_content=False):
                received += chunk
                if len(received) > BODY_MAX:
                    raise _TooLarge
            return HttpAnswer(response.status_code, bytes(received))


class _TooLarge(Exception):
    pass


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# A timeout of the library's is per read: a peer that sends a byte a second never meets it.
# So the call's socket is shut down from outside when its time is over.
class _Current(threading.local):
    call: _Call | None = None


@dataclass
class _Call:
    over: threading.Event
    lock: threading.Lock = field(default_factory=threading.Lock)
    sock: socket.socket | None = None

    def uses(self, sock: socket.socket | None) -> None:
        with self.lock:
            self.sock = sock
            if self.over.is_set():
                self._shut()

    def end(self) -> None:
        with self.lock:
            self.over.set()
            self._shut()

    def leave(self) -> None:
        # A timer that has just fired must not meet the socket's next user.
        with self.lock:
            self.sock = None

    def _shut(self) -> None:
        if self.sock is not None:
            with suppress(OSError):  # already closed: nothing is left to end
                # The plain method on purpose: a TLS socket's own would drop the session
                # under the thread that reads from it.
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


_current = _Current()


@contextmanager
def _ending_after(seconds: float) -> Iterator[threading.Event]:
    call = _Call(threading.Event())
    timer = threading.Timer(seconds, call.end)
    timer.daemon = True
    _current.call = call
    timer.start()
    try:
        yield call.over
    finally:
        timer.cancel()
        _current.call = None
        call.leave()


def _tell(connection: HTTPConnection) -> None:
    if _current.call is not None:
        _current.call.uses(connection.sock)


class _PlainConnection(HTTPConnection):
    def getresponse(self) -> Any:
        _tell(self)
        return super().getresponse()


class _TlsConnection(HTTPSConnection):
    def getresponse(self) -> Any:
        _tell(self)
        return super().getresponse()


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}
