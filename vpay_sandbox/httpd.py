"""A small HTTP/1.1 server that a stub can be rude with.

Written out because the stubs need what servers hide: an answer held open for ever, a connection
closed without an answer, a body cut short; and a peer that costs less than what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from vpay_sandbox.journal import now_ms

# Above what any rail call or event needs; a client that sends more is at fault, and is told.
HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """`n` counts from 1 per server, `at_ms` is the arrival, header names are lower case."""

    n: int
    at_ms: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; ValueError when it is none."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer; the connection stays open until the client gives up."""


@dataclass(frozen=True, slots=True)
class Hangup:
    """The connection is closed without an answer."""


Answer = Reply | Silence | Hangup
App = Callable[[Request], Awaitable[Answer]]


def json_reply(status: int, body: object) -> Reply:
    return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


class BadRequestError(Exception):
    """The bytes are no HTTP request that we read."""


class HttpServer:
    """Runs `app` for every request; a client that goes away cancels the app's coroutine."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.numbers = itertools.count(1)
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> int:
        """Listens on 127.0.0.1; 0 lets the kernel choose. Returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", port, backlog=1024
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Closes everything, answers in progress too."""
        if self._server is not None:
            self._server.close()
        tasks = [connection.task for connection in self.connections if connection.task]
        for connection in list(self.connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks)
        if self._server is not None:
            await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._continued = False
        self._transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._transport = None
        if self.task is not None:
            self.task.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self.task is not None:
            self.task.cancel()

    def _advance(self) -> None:
        """Starts on the next request when the last one is answered and this one is whole."""
        if self.task is not None or self._transport is None:
            return
        try:
            parsed = _parse(self._buffer)
        except BadRequestError as error:
            self._send(Reply(400, str(error).encode()), close=True)
            return
        if parsed is None:
            self._continue()
            return
        self._continued = False
        head, body, used = parsed
        del self._buffer[:used]
        target, _, query = head.target.partition("?")
        request = Request(
            next(self._server.numbers), now_ms(), head.method, target, query, head.headers, body
        )
        close = head.headers.get("connection", "").lower() == "close" or head.old
        self.task = asyncio.get_running_loop().create_task(self._answer(request, close))

    def _continue(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end >= 0 and not self._continued and b"100-continue" in self._buffer[:end].lower():
            self._continued = True
            assert self._transport is not None
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _answer(self, request: Request, close: bool) -> None:
        try:
            answer = await self._server.app(request)
        except Exception as error:  # noqa: BLE001 a fault of the stub must not look like silence
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"stub failed on {request.method} {request.path}", "exception": error}
            )
            answer = Reply(500, b"stub fault")
        if isinstance(answer, Silence):
            await asyncio.get_running_loop().create_future()  # ends by the client's going away
        self.task = None
        if self._transport is None:
            return
        if isinstance(answer, Reply):
            self._send(answer, close)
            self._advance()
        else:
            self._transport.abort()

    def _send(self, reply: Reply, close: bool) -> None:
        assert self._transport is not None
        try:
            reason = HTTPStatus(reply.status).phrase
        except ValueError:
            reason = "Unnamed"
        lines = [f"HTTP/1.1 {reply.status} {reason}"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        # A script may state its own length: that is how a body is cut short.
        if not any(name.lower() == "content-length" for name in reply.headers):
            lines.append(f"Content-Length: {len(reply.body)}")
        if close:
            lines.append("Connection: close")
        self._transport.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + reply.body)
        if close:
            self._transport.close()


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    target: str
    old: bool
    headers: Mapping[str, str]


def _parse(buffer: bytearray) -> tuple[_Head, bytes, int] | None:
    """The first whole request and its length, None when more bytes are needed."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or end > HEAD_LIMIT:
        if len(buffer) > HEAD_LIMIT:
            raise BadRequestError("head too large")
        return None
    first, *rest = buffer[:end].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequestError("no HTTP/1 request line")
    headers: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequestError("a header line without a colon")
        headers[name.strip().lower()] = value.strip()
    head = _Head(words[0], words[1], words[2] == "HTTP/1.0", headers)
    if "chunked" in headers.get("transfer-encoding", "").lower():
        chunked = _dechunk(buffer, end + 4)
        return None if chunked is None else (head, *chunked)
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > BODY_LIMIT:
        raise BadRequestError("bad or too large Content-Length")
    used = end + 4 + int(length)
    return None if len(buffer) < used else (head, bytes(buffer[end + 4 : used]), used)


def _dechunk(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    body = bytearray()
    while True:
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return None
        try:
            size = int(buffer[at:line_end].split(b";")[0], 16)
        except ValueError:
            raise BadRequestError("bad chunk size") from None
        if size < 0 or len(body) + size > BODY_LIMIT:
            raise BadRequestError("chunks too large")
        at = line_end + 2 + size + 2
        if len(buffer) < at:
            return None
        if size == 0:
            return bytes(body), at  # trailers are not read: no client of ours sends any
        body += buffer[line_end + 2 : at - 2]
