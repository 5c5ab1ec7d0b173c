"""Requests as strangers send them: well-formed ones, and bytes on a socket."""

from __future__ import annotations

import json
import socket
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import urllib3


@dataclass(frozen=True)
class Told:
    """An answer."""

    status: int
    body: Any
    headers: dict[str, str]


class Client:
    """Of one port of this machine."""

    def __init__(self, port: int, *, connections: int = 32) -> None:
        self.port = port
        self._pool = urllib3.HTTPConnectionPool(
            "127.0.0.1", port, maxsize=connections, block=True, timeout=30, retries=False
        )

    def get(self, path: str, **headers: str) -> Told:
        return self._told("GET", path, None, headers)

    def is_up(self, *, ready: bool = True) -> bool:
        """Whether it answers, and its database too (`ready`)."""
        try:
            return self.get("/readyz" if ready else "/healthz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def send(self, path: str, body: bytes, *, method: str = "POST", **headers: str) -> Told:
        return self._told(method, path, body, headers)

    def call_back(self, code: str, body: object, *, method: str = "POST") -> Told:
        """A callback; `body` is JSON unless it is bytes already."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send(f"/provider/{code}/callback", raw, method=method)

    def bytes_back(self, sent: bytes, *, timeout: float = 30.0) -> bytes:
        """Everything that comes back for `sent` until the server hangs up."""
        with closing(self.socket(timeout)) as line:
            line.sendall(sent)
            return to_the_end(line)

    def socket(self, timeout: float = 30.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def _told(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Told:
        answer = self._pool.request(method, path, body=body, headers=headers)
        text = answer.data.decode()
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return Told(answer.status, json.loads(text) if is_json else text, dict(answer.headers))


def to_the_end(line: socket.socket, found: bytearray | None = None) -> bytes:
    """What comes until the other side hangs up, be it with bytes of ours unread; added to
    `found`."""
    found = bytearray() if found is None else found
    with suppress(ConnectionResetError):
        while piece := line.recv(65_536):
            found += piece
    return bytes(found)
