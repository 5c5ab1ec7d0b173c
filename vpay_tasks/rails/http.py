"""HTTP towards rails: the only user of requests.

No session: so no redirect is followed, no proxy or netrc of the environment used, no
cookie kept. One deadline ends a call whatever resolver and peer do, dripping included.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from vpay_tasks import telemetry
from vpay_tasks.config import WindowsTable
from vpay_tasks.core import strict_json
from vpay_tasks.errors import Rail
from vpay_tasks.rails import dial

BODY_MAX: Final = 256 * 1024
"""Bytes of an answer that are read. A rail's longest documented one has two thousand."""


@dataclass(frozen=True)
class HttpAnswer:
    """What came back. The body stays out of the repr: it may name a payer or hold a token."""

    status: int
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """The body as strict_json reads it: None for what is none."""
        return strict_json.read(self.body)

    def json_object(self) -> dict[str, Any] | None:
        value = self.json()
        return value if isinstance(value, dict) else None


class RailHttp:
    """Requests to one rail. Safe to share between threads; connections are kept."""

    def __init__(
        self,
        rail: str,
        windows: WindowsTable,
        *,
        clock: Callable[[], float] = time.monotonic,
        look_up: dial.LookUp = dial.look_up,
    ) -> None:
        self._rail = rail
        self._connect = windows.rail_connect
        self._request = windows.rail_request
        self._clock = clock
        self._look_up = look_up
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
        with _ending_after(left, self._connect, self._look_up, where) as over:
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


# A timeout of the library's is per address and per read: a name with many dead addresses
# multiplies it, and a peer that sends a byte a second never meets it. So the call dials
# itself, and its socket is shut down from outside when its time is over.
class _Current(threading.local):
    call: _Call | None = None


@dataclass
class _Call:
    until: float
    connect: float
    look_up: dial.LookUp
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    sock: socket.socket | None = None

    def dial(self, host: str, port: int, options: dial.Options) -> socket.socket:
        sock = dial.connect(
            host,
            port,
            until=min(self.until, time.monotonic() + self.connect),
            look_up=self.look_up,
            options=options,
        )
        try:
            self.uses(sock)
        except OSError:
            sock.close()
            raise
        return sock

    def uses(self, sock: socket.socket) -> None:
        """Tie the call to `sock`, before a byte of it is sent. Raises OSError once its time
        is over."""
        with self.lock:
            # A descriptor of our own: TLS takes the socket's away, and nobody else gets this
            # one's number while the timer looks at it.
            self._let_go()
            self.sock = socket.socket(sock.family, sock.type, fileno=os.dup(sock.fileno()))
            if self.over.is_set() or time.monotonic() >= self.until:
                raise TimeoutError("no time was left to send")

    def end(self) -> None:
        with self.lock:
            self.over.set()
            if self.sock is not None:
                with suppress(OSError):  # already closed: nothing is left to end
                    self.sock.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        # A timer that has just fired must not meet the socket's next user.
        with self.lock:
            self._let_go()

    def _let_go(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


_current = _Current()


@contextmanager
def _ending_after(
    seconds: float, connect: float, look_up: dial.LookUp, where: str
) -> Iterator[threading.Event]:
    call = _Call(time.monotonic() + seconds, connect, look_up)
    timer = threading.Timer(seconds, call.end)
    timer.daemon = True
    _current.call = call
    try:
        timer.start()
    except RuntimeError as error:  # the machine has no room for one more thread
        _current.call = None
        raise Rail(f"{where}: no thread to keep its deadline") from error
    try:
        yield call.over
    finally:
        timer.cancel()
        _current.call = None
        call.leave()


def _call() -> _Call:
    assert _current.call is not None, "a connection is used outside of a call"
    return _current.call


class _PlainConnection(HTTPConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:  # kept from an earlier call, or made by TLS just now
            _call().uses(self.sock)
        super().request(*args, **kwargs)

    def _new_conn(self) -> socket.socket:
        try:
            sock = _call().dial(
                self.host.strip("[]"), self.port or self.default_port, self.socket_options or ()
            )
        except TimeoutError as error:
            raise urllib3.exceptions.ConnectTimeoutError(self, "not connected in time") from error
        except OSError as error:
            raise urllib3.exceptions.NewConnectionError(self, "not connected") from error
        sock.settimeout(self.timeout)
        return sock


class _TlsConnection(_PlainConnection, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}
