"""Where a delivery may go: the URL taken apart once, its name resolved once.

Every call to a merchant's URL passes through `parse` and `resolve`, so the egress guard has
one room: it vets what these two return. It is not built yet, hence livemode refuses to boot.
"""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import dataclass
from typing import Final

from vpay_tasks.errors import InvalidRequest

PORTS: Final = {"http": 80, "https": 443}

# One strict reading instead of a parser's forgiveness: no userinfo, no backslash, no
# fragment, nothing outside of printable ASCII. Two lax parsers disagree on the host.
_URL: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9._-]{1,253}))"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>[/?][!\"$-\[\]-~]*)?",
    re.ASCII,
)


class EgressRefused(InvalidRequest):
    """The URL is not one that we call. The text names the fault, never the URL: a path may
    be as good as a password."""


@dataclass(frozen=True)
class Target:
    """A URL as it will be called."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The Host header's value."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True)
class Address:
    """One answer of the resolver, ready to be connected to."""

    family: socket.AddressFamily
    sockaddr: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]

    def __str__(self) -> str:
        return str(self.sockaddr[0])


def parse(url: str) -> Target:
    """Raises EgressRefused for whatever is not a plain http(s) URL."""
    found = _URL.fullmatch(url)
    if found is None or len(url) > 2_048:
        raise EgressRefused("the URL is not a plain http or https URL")
    scheme = found["scheme"]
    port = int(found["port"] or PORTS[scheme])
    if not 1 <= port <= 65_535:
        raise EgressRefused("the URL's port is out of range")
    path = found["path"] or "/"
    return Target(
        scheme=scheme,
        host=found["v6"] or found["host"],
        port=port,
        path=path if path.startswith("/") else f"/{path}",
    )


def resolve(target: Target, timeout: float) -> list[Address]:
    """Every address of the target's name. Raises OSError: no such name, or no answer within
    `timeout` seconds."""
    try:
        return _looked_up(target, socket.AI_NUMERICHOST)
    except OSError:
        pass  # a name, so it has to be asked for
    answer: list[Address] = []
    failure: list[OSError] = []

    def ask() -> None:
        try:
            answer.extend(_looked_up(target, 0))
        except OSError as error:
            failure.append(error)

    # getaddrinfo can't be given a timeout; a thread that still waits for the resolver ends
    # with the resolver's own patience, and nobody waits for it.
    thread = threading.Thread(target=ask, name="vpay-resolve", daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise TimeoutError("the name was not resolved in time")
    if failure:
        raise OSError("the name does not resolve") from failure[0]
    return answer


def _looked_up(target: Target, flags: int) -> list[Address]:
    tcp = (socket.AF_UNSPEC, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found = socket.getaddrinfo(target.host, target.port, *tcp, flags)
    except UnicodeError as error:  # a label over 63 characters, 'a..b'
        raise OSError("the host is not a name") from error
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]
