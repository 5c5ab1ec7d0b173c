"""A connection by an instant: the name asked for, and each of its addresses tried, in time.

The system's resolver takes no timeout, and a library's connect timeout is per address: a
name with eight dead ones would take eight of them.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
LookUp = Callable[[str, int], Sequence[Found]]
Options = Sequence[tuple[int, int, int | bytes]]


def look_up(host: str, port: int) -> Sequence[Found]:
    """The addresses of `host`, however long the system's resolver takes. Raises OSError."""
    tcp = (socket.AF_UNSPEC, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        return socket.getaddrinfo(host, port, *tcp)
    except UnicodeError as error:  # a label over 63 characters
        raise OSError("the host is not a name") from error


def connect(
    host: str, port: int, *, until: float, look_up: LookUp, options: Options = ()
) -> socket.socket:
    """A connected socket before the instant `until` of `time.monotonic()`. Raises OSError,
    TimeoutError once it has passed."""
    found = _resolved(host, port, until, look_up)
    failure = OSError("the name has no address")
    for position, address in enumerate(found):
        # An even share of what is left: one dead address must not hide a live one.
        share = _left(until) / (len(found) - position)
        try:
            return _connected(address, share, options)
        except OSError as error:
            failure = error
    raise failure


def _resolved(host: str, port: int, until: float, look_up: LookUp) -> Sequence[Found]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return look_up(host, port)  # nobody has to be asked
    answer: list[Sequence[Found]] = []
    failure: list[OSError] = []

    def ask() -> None:
        try:
            answer.append(look_up(host, port))
        except OSError as error:
            failure.append(error)

    # Nobody waits for a thread that is late; it ends with the resolver's own patience.
    thread = threading.Thread(target=ask, name="vpay-resolve", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the machine has no room for one more
        raise OSError("no thread to resolve the name in") from error
    thread.join(_left(until))
    if failure:
        raise OSError("the name does not resolve") from failure[0]
    if not answer:
        raise TimeoutError("the name was not resolved in time")
    return answer[0]


def _connected(address: Found, patience: float, options: Options) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        for option in options:
            sock.setsockopt(*option)
        sock.settimeout(patience)
        sock.connect(where)
    except OSError:
        sock.close()
        raise
    return sock


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time was left to connect")
    return left
