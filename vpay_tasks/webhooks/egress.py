"""Where a delivery may go: the URL taken apart once, its name resolved once, every answer vetted.

The order is the guard: parse strictly, resolve once, vet every address, connect to one of
those (send.py) – never to the name again, whose answer may have changed. TLS, SNI and the
Host header keep the name. No redirect, proxy or kept connection leads around it.

What is wrong with the URL itself is `EgressRefused`: nobody but the operator can mend it.
What is wrong with the resolver's answer is `NameRefused` or `NameUnresolved`: a poisoned
answer passes, so the delivery must outlive it. No text of theirs holds URL or address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
import time
from dataclasses import dataclass
from typing import Final

from vpay_tasks.config import Settings
from vpay_tasks.errors import InvalidRequest
from vpay_tasks.webhooks import addresses, hosts
from vpay_tasks.webhooks.addresses import Kind
from vpay_tasks.webhooks.hosts import Shape

PORTS: Final = {"http": 80, "https": 443}
URL_MAX: Final = 2_048
LOOKUPS_MAX: Final = 256
"""Lookups under way in a process, those that nobody waits for any more among them: each keeps
its thread for the resolver's own patience (10 s as a rule, some minutes at the worst). Lower:
many deliveries to one dead name keep others from asking; higher: more threads pile up."""
_lookups: Final = threading.BoundedSemaphore(LOOKUPS_MAX)

WHY: Final[dict[Shape | Kind, str]] = {
    Shape.SCHEME: "https:// in small letters, or http:// in test mode",
    Shape.SYNTAX: "not scheme://host[:port]/path in plain ASCII; no fragment, no backslash",
    Shape.USERINFO: "no user or password in a URL",
    Shape.PORT: "the scheme's own port, or one that egress.ports allows",
    Shape.NAME: "a full name of the public DNS, without a trailing dot; no stand-in's",
    Shape.NUMERIC: "some readers take such a host for an address",
    Shape.UNICODE: "write an international name in its xn-- form",
    Shape.LITERAL: "livemode calls names only",
    Shape.ZONE_ID: "an address with a zone is this machine's network",
}


@dataclass(frozen=True)
class Rules:
    """How strict the guard is. The default is livemode's."""

    livemode: bool = True
    ports: frozenset[int] = frozenset({443})
    """What livemode calls; test mode calls any."""
    private: bool = False
    """A sandbox: names and addresses of its own network, too. The URL is read as strictly."""


SANDBOX: Final = Rules(livemode=False, private=True)


def rules(settings: Settings) -> Rules:
    return Rules(
        livemode=settings.livemode.enabled,
        ports=frozenset(settings.egress.ports),
        private=settings.egress.allow_private_targets,
    )


class EgressRefused(InvalidRequest):
    """The URL is not one that we call."""

    def __init__(self, kind: Shape | Kind) -> None:
        super().__init__(f"ssrf_blocked: {kind}")
        self.kind = kind

    @property
    def why(self) -> str:
        return WHY.get(self.kind, "an address that is nobody's public one")


class NameRefused(OSError):
    """The name's addresses are not all public ones: none of them is connected to."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(f"dns_refused: {kind}")
        self.kind = kind


class NameUnresolved(OSError):
    """The name has no address, or had none in time."""

    def __init__(self, what: str) -> None:
        super().__init__(f"dns_failed: {what}")


@dataclass(frozen=True)
class Target:
    """A URL as it will be called."""

    scheme: str
    host: str
    port: int
    path: str
    literal: bool
    """The host is an address, and was vetted as one."""

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


# Printable ASCII without a space, '#', '\' or a second reading of either.
_PATH: Final = re.compile(r"(?:[/?][!\"$-\[\]-~]*)?", re.ASCII)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_HOST: Final = re.compile(r"[a-z0-9._-]+", re.ASCII)


def parse(url: str, rules: Rules) -> Target:
    """One strict reading instead of a parser's forgiveness: two lax ones disagree on the
    host. Raises EgressRefused."""
    if len(url) > URL_MAX or any(c <= " " or c in "\x7f\\#" for c in url):
        raise EgressRefused(Shape.SYNTAX)
    scheme, rest = _scheme(url, rules)
    if not rest.startswith("//"):
        raise EgressRefused(Shape.SYNTAX)
    authority, path = _split(rest[2:])
    if "@" in authority:
        raise EgressRefused(Shape.USERINFO)
    host, port_text, bracketed = _host_and_port(authority)
    literal = _literal(host, bracketed, rules)
    if not literal:
        _check_name(host, rules)
    if not _PATH.fullmatch(path):
        raise EgressRefused(Shape.SYNTAX)
    return Target(
        scheme=scheme,
        host=host,
        port=_port(port_text, scheme, rules),
        path=path if path.startswith("/") else f"/{path}",
        literal=literal,
    )


def _scheme(url: str, rules: Rules) -> tuple[str, str]:
    found = _SCHEME.match(url)
    if found is None:
        raise EgressRefused(Shape.SYNTAX)
    if found[1] not in PORTS or (rules.livemode and found[1] != "https"):
        raise EgressRefused(Shape.SCHEME)
    return found[1], url[found.end() :]


def _split(rest: str) -> tuple[str, str]:
    """Authority, and the path with its query."""
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    return rest[:end], rest[end:]


def _host_and_port(authority: str) -> tuple[str, str | None, bool]:
    """The host in small letters, the port's text if there is a colon, and whether the host
    stood in brackets."""
    if authority.startswith("["):
        host, closed, behind = authority[1:].partition("]")
        if not closed or not (behind == "" or behind.startswith(":")):
            raise EgressRefused(Shape.SYNTAX)
        return host.lower(), behind[1:] if behind else None, True
    host, colon, port = authority.partition(":")
    if not host or ":" in port:
        raise EgressRefused(Shape.SYNTAX)
    if not host.isascii():  # before lower(): the Kelvin sign's small letter is a k
        raise EgressRefused(Shape.UNICODE)
    return host.lower(), port if colon else None, False


def _literal(host: str, bracketed: bool, rules: Rules) -> bool:
    """Whether the host is an address; raises EgressRefused for one that is not called."""
    if bracketed and "%" in host:
        raise EgressRefused(Shape.ZONE_ID)
    try:
        (ipaddress.IPv6Address if bracketed else ipaddress.IPv4Address)(host)
    except ValueError:
        if bracketed:
            raise EgressRefused(Shape.SYNTAX) from None
        return False
    if rules.private:
        return True
    kind = addresses.kind_of(host)
    if kind is not None or rules.livemode:
        raise EgressRefused(kind or Shape.LITERAL)
    return True


def _check_name(host: str, rules: Rules) -> None:
    if not _HOST.fullmatch(host):
        raise EgressRefused(Shape.SYNTAX)
    if hosts.is_numeric(host):
        raise EgressRefused(Shape.NUMERIC)
    right = hosts.is_local_name(host) if rules.private else hosts.is_public_name(host)
    if not right or (rules.livemode and hosts.is_stand_in(host)):
        raise EgressRefused(Shape.NAME)


def _port(text: str | None, scheme: str, rules: Rules) -> int:
    if text is None:
        port = PORTS[scheme]
    elif _PORT.fullmatch(text) and int(text) <= 65_535:
        port = int(text)
    else:
        raise EgressRefused(Shape.PORT)
    if rules.livemode and port not in rules.ports:
        raise EgressRefused(Shape.PORT)
    return port


def resolve(target: Target, timeout: float, rules: Rules) -> list[Address]:
    """Every address of the target, each of them vetted. Raises NameUnresolved, also when
    there is no answer within `timeout` seconds, and NameRefused for one forbidden address
    among any number of good ones: whoever mixes them is trying."""
    if target.literal:
        return _looked_up(target.host, target.port, socket.AI_NUMERICHOST)
    found = _asked(target, timeout, rules)
    if not rules.private:
        for address in found:
            kind = addresses.kind_of(str(address))
            if kind is not None:
                raise NameRefused(kind)
    return found


def _asked(target: Target, timeout: float, rules: Rules) -> list[Address]:
    # With its dot the name is whole: no search domain of this machine's is tried with it.
    name = target.host if rules.private else f"{target.host}."
    answer: list[Address] = []
    failure: list[OSError] = []

    def ask() -> None:
        try:
            answer.extend(_looked_up(name, target.port, 0))
        except OSError as error:
            failure.append(error)
        finally:
            _lookups.release()

    # getaddrinfo can't be given a timeout; a thread that still waits for the resolver ends
    # with the resolver's own patience, and nobody waits for it.
    until = time.monotonic() + timeout
    if not _lookups.acquire(timeout=timeout):
        raise NameUnresolved("too many lookups have no answer yet")
    thread = threading.Thread(target=ask, name="vpay-resolve", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # this machine's limit, and no fault of the delivery's
        _lookups.release()
        raise NameUnresolved("no thread to ask in") from error
    thread.join(max(until - time.monotonic(), 0))
    if thread.is_alive():
        raise NameUnresolved("no answer in time")
    if failure:
        raise NameUnresolved("the name does not resolve") from failure[0]
    return answer


def _looked_up(host: str, port: int, flags: int) -> list[Address]:
    tcp = (socket.AF_UNSPEC, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # As bytes: given text, Python would read it once more, by its own rules of names.
    found = socket.getaddrinfo(host.encode("ascii"), port, *tcp, flags)
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]
