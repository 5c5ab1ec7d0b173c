"""Receivers on real sockets, down to the byte: polite ones and hostile ones."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

DRIP_S = 0.01


@dataclass(frozen=True)
class Seen:
    """A request as it came in."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Gives its answers in order, the last one for ever; keeps what it was sent."""

    answers: list[Callable[[Receiver, socket.socket], None]]
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    before_answer: Callable[[], None] = lambda: None

    def bodies(self) -> list[bytes]:
        return [request.body for request in self.seen]


def answer(status: int, body: bytes = b"", *headers: str) -> Callable[..., None]:
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers, "", ""]
    return says("\r\n".join(lines).encode() + body)


def says(raw: bytes) -> Callable[..., None]:
    """These bytes and a clean end."""
    return lambda _receiver, connection: connection.sendall(raw)


def never(receiver: Receiver, _connection: socket.socket) -> None:
    receiver.closing.wait()


def stays_open_after(raw: bytes) -> Callable[..., None]:
    def give(receiver: Receiver, connection: socket.socket) -> None:
        connection.sendall(raw)
        receiver.closing.wait()

    return give


def for_ever(first: bytes, then: bytes, *, pause: float = 0.0) -> Callable[..., None]:
    """`first`, then `then` over and over, `pause` seconds apart, until the other end leaves."""

    def give(receiver: Receiver, connection: socket.socket) -> None:
        connection.sendall(first)
        while not receiver.closing.wait(pause):
            connection.sendall(then)

    return give


def resets_after(raw: bytes) -> Callable[..., None]:
    def give(_receiver: Receiver, connection: socket.socket) -> None:
        connection.sendall(raw)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return give


@contextmanager
def receiving(
    *answers: Callable[..., None], tls: ssl.SSLContext | None = None, reads: bool = True
) -> Iterator[Receiver]:
    """A receiver at `.url`; `reads=False` answers before it has read a body."""
    receiver = Receiver(list(answers) or [answer(200)])
    server = socket.create_server(("127.0.0.1", 0))
    scheme = "https" if tls else "http"
    receiver.url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/hooks?for=vpay"
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            number = len(threads)
            chosen = receiver.answers[min(number, len(receiver.answers) - 1)]
            threads.append(threading.Thread(target=serve, args=(connection, chosen)))
            threads[-1].start()

    def serve(connection: socket.socket, give: Callable[..., None]) -> None:
        with suppress(OSError):
            secured = tls.wrap_socket(connection, server_side=True) if tls else connection
            with secured:
                receiver.seen.append(_request(secured, reads=reads))
                receiver.before_answer()
                give(receiver, secured)
        connection.close()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield receiver
    finally:
        receiver.closing.set()
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        accepting.join()
        for thread in threads:
            thread.join()


def _request(connection: socket.socket, *, reads: bool) -> Seen:
    with connection.makefile("rb", buffering=-1 if reads else 0) as stream:
        line = stream.readline().decode().rstrip()
        headers: dict[str, str] = {}
        while text := stream.readline().decode("latin-1").strip():
            name, _, value = text.partition(":")
            headers[name] = value.strip()
        body = stream.read(int(headers.get("Content-Length", "0"))) if reads else b""
    return Seen(line, headers, body)
