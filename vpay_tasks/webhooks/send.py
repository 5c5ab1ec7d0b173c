"""One POST under one deadline, to a receiver that may be hostile.

No redirects, no proxies, no netrc, no kept connections: a socket, its TLS, a request, and as
much of the answer as decides (connection.py, answer.py). Of the environment OpenSSL's own
SSL_CERT_FILE and SSL_CERT_DIR count, and nothing else: by them an operator names the trust
store, in an image that has none for one.
"""

from __future__ import annotations

import functools
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Final

from vpay_tasks.errors import InvalidRequest, VpayError, describe
from vpay_tasks.telemetry import count
from vpay_tasks.webhooks import egress
from vpay_tasks.webhooks.answer import Incoming, excerpt
from vpay_tasks.webhooks.connection import Connection, Deadline, Plain, Secured, connected

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]{0,4096}", re.ASCII)


class Trouble(Enum):
    """Why nothing was sent, when that is not the receiver's doing."""

    URL = "url"
    """The guard refuses the URL as it is written, now and later."""
    NAME = "name"
    """The name's answer was refused, or there was none. It may pass."""


@dataclass(frozen=True)
class Answer:
    """What came of one POST. `status` None: no answer, and `excerpt` says why."""

    status: int | None
    excerpt: str
    seconds: float
    address: str | None = None
    retry_after: str | None = None
    trouble: Trouble | None = None


class Withheld(Exception):
    """`may_send` said no: the connection stood, and nothing was sent over it. Not an answer:
    whoever may send asks instead."""


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    rules: egress.Rules,
    connect: float,
    whole: float,
    hide: tuple[str, ...] = (),
    tls: ssl.SSLContext | None = None,
    may_send: Callable[[], bool] = lambda: True,
) -> Answer:
    """POST `body` to `url` within `whole` seconds, of which the connection may take `connect`,
    if `rules` let it go there.

    Never raises for anything that the receiver, the network or the URL does. `hide` are
    secrets that the answer's excerpt must not repeat. `tls` replaces the shared context.
    `may_send` is asked last, right before the first byte of the request; raises Withheld if
    it says no.
    """
    deadline = Deadline(whole)
    address: str | None = None
    try:
        target = egress.parse(url, rules)
        request = _request(target, headers, body)
        sock, found = _connected(target, rules, min(connect, whole), deadline)
        address = str(found)
        with closing(_secured(sock, target, deadline, tls or _shared_tls())) as connection:
            if not may_send():
                raise Withheld
            count("posts")
            incoming = _converse(connection, request)
    except egress.EgressRefused as refused:
        return Answer(None, str(refused), deadline.spent, trouble=Trouble.URL)
    except egress.NameRefused as refused:
        return Answer(None, str(refused), deadline.spent, trouble=Trouble.NAME)
    except egress.NameUnresolved as failed:
        return Answer(None, describe(failed), deadline.spent, trouble=Trouble.NAME)
    # ValueError: a host that TLS can't take.
    except (OSError, ValueError, VpayError) as error:
        return Answer(None, describe(error), deadline.spent, address)
    return Answer(
        status=incoming.status,
        excerpt=excerpt(incoming.body, hide),
        seconds=deadline.spent,
        address=address,
        retry_after=incoming.header("retry-after"),
    )


def _connected(
    target: egress.Target, rules: egress.Rules, connect: float, deadline: Deadline
) -> tuple[socket.socket, egress.Address]:
    limit = Deadline(min(connect, deadline.left()))
    return connected(egress.resolve(target, limit.left(), rules), limit)


def _secured(
    sock: socket.socket, target: egress.Target, deadline: Deadline, tls: ssl.SSLContext
) -> Connection:
    plain = Plain(sock, deadline)
    if target.scheme == "http":
        return plain
    try:
        return Secured(plain, tls, target.host)
    except BaseException:
        plain.close()
        raise


@functools.cache
def _shared_tls() -> ssl.SSLContext:
    """One context for all: one per call would load the trust store each time and leak.
    Not `create_default_context`, which obeys SSLKEYLOGFILE."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    # A name in the subject alone is none that public CAs have looked at.
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    return context


def _request(target: egress.Target, headers: Mapping[str, str], body: bytes) -> bytes:
    every = {
        "Host": target.authority,
        **headers,
        "Content-Length": str(len(body)),
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    for name, value in every.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidRequest("a header holds what no header may")
    lines = [f"POST {target.path} HTTP/1.1", *(f"{k}: {v}" for k, v in every.items()), "", ""]
    return "\r\n".join(lines).encode("ascii") + body


def _converse(connection: Connection, request: bytes) -> Incoming:
    """Send, then read until the answer is whole, large or late. Raises what cut it off, if
    that was before a status line."""
    failure: OSError | None = None
    try:
        connection.send(request)
    except OSError as error:
        failure = error  # it may have answered before it had read everything
    incoming = Incoming()
    try:
        while not incoming.complete:
            chunk = connection.receive(min(4_096, incoming.room))
            if not chunk:
                break
            incoming.feed(chunk)
    except OSError as error:
        failure = failure or error
    if incoming.status is None:
        text = incoming.fault or "the connection ended without a status line"
        raise ConnectionError(text) from failure
    return incoming
