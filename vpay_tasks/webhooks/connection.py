"""A receiver's connection, in which every wait is for what is left of one deadline.

TLS goes through memory and not through the socket: left alone with one, OpenSSL reads on for
as long as records without a byte of data come in (session tickets, key updates), and who
sends those faster than they are read keeps it from ever looking at a clock. Here it gets one
chunk at a time, the clock is looked at before each, and so is how much has come.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from vpay_tasks.webhooks.egress import Address

T = TypeVar("T")

TRIED_MAX: Final = 4
"""Addresses of a name that one attempt tries. More: each one's share of the time to connect
is less than far networks need (5 s make 1.25 s); fewer: one dead site hides a live one."""
CHUNK: Final = 16_384
CAME_MAX: Final = 262_144
"""Encrypted bytes that may come in: OpenSSL takes 100 KB of certificates, we 16 KiB of an
answer. Lower: a receiver with long certificates fails; higher: who floods is read for longer."""


class Deadline:
    """An instant of the monotonic clock at which everything ends."""

    def __init__(self, seconds: float) -> None:
        self.begun = time.monotonic()
        self._end = self.begun + seconds
        self._seconds = seconds

    @property
    def spent(self) -> float:
        return time.monotonic() - self.begun

    def left(self) -> float:
        """Seconds left; raises TimeoutError when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the deadline of {self._seconds:g} s was reached")
        return left


class Connection(Protocol):
    """What a request goes out by and its answer comes in by. Raises OSError, TimeoutError
    among them."""

    def send(self, data: bytes) -> None:
        """All of `data`."""
        ...

    def receive(self, size: int) -> bytes:
        """What there is, `size` bytes at most; nothing at the end."""
        ...

    def close(self) -> None: ...


class Plain:
    """A socket."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._sock.settimeout(self._deadline.left())
            rest = rest[self._sock.send(rest) :]

    def receive(self, size: int) -> bytes:
        self._sock.settimeout(self._deadline.left())
        return self._sock.recv(size)

    def close(self) -> None:
        self._sock.close()


class Secured:
    """TLS over a plain connection, which closes with it. The other end proves `name` first;
    raises OSError if it doesn't, ValueError for a name that can't be proven."""

    def __init__(self, plain: Plain, tls: ssl.SSLContext, name: str) -> None:
        self._plain = plain
        self._came = 0
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._driven(self._tls.do_handshake)

    def send(self, data: bytes) -> None:
        self._driven(lambda: self._tls.write(data))

    def receive(self, size: int) -> bytes:
        try:
            return self._driven(lambda: self._tls.read(size))
        except ssl.SSLEOFError:  # most servers end without TLS's own farewell
            return b""

    def close(self) -> None:
        self._plain.close()

    def _driven(self, step: Callable[[], T]) -> T:
        while True:
            try:
                done = [step()]
            except ssl.SSLWantReadError:
                done = []
            except ssl.SSLError:
                with suppress(OSError):  # so that the other end reads why, too
                    self._plain.send(self._outgoing.read())
                raise
            self._plain.send(self._outgoing.read())
            if done:
                return done[0]
            self._take()

    def _take(self) -> None:
        chunk = self._plain.receive(CHUNK)
        self._came += len(chunk)
        if self._came > CAME_MAX:
            raise ConnectionError(f"more than {CAME_MAX} bytes came in before an answer was whole")
        if chunk:
            self._incoming.write(chunk)
        else:
            self._incoming.write_eof()


def connected(found: list[Address], limit: Deadline) -> tuple[socket.socket, Address]:
    """A socket to the first address that takes it, before `limit`. Raises OSError."""
    failure = OSError("the name has no address")
    tried = _both_families_first(found)[:TRIED_MAX]
    for position, address in enumerate(tried):
        # An even share of what is left: one dead address must not hide a live one.
        share = limit.left() / (len(tried) - position)
        try:
            return _connected(address, share), address
        except OSError as error:
            failure = error
    raise failure


def _both_families_first(found: list[Address]) -> list[Address]:
    """In the resolver's order, but that the first of each family come first: a family without
    a way out is dead for all of its addresses."""
    seen = [address.family for address in found]
    firsts = [found[seen.index(family)] for family in dict.fromkeys(seen)]
    return [*firsts, *(address for address in found if address not in firsts)]


def _connected(address: Address, patience: float) -> socket.socket:
    plain = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        plain.settimeout(patience)
        plain.connect(address.sockaddr)
        # The head and the body leave at once, not after the receiver's delayed ack.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        plain.close()
        raise
    return plain
