"""The way to Postgres and to the broker: addresses that can be read, and what livemode asks of
a way that leaves the machine.

Whoever stands on a network can read what passes and answer in a server's place, unless TLS
proves whose answer it is. A Unix socket and a loopback address never leave the machine: there
it is its own users that an operator has to trust, and a pooler or a proxy beside us that has to
go on by TLS.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

_HOST: Final = re.compile(r"^(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:\d*)?$")
"""One of the hosts of an address; Postgres takes several."""

_VARIABLES: Final = {
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGPASSWORD": "password",
    "PGSERVICE": "service",
    "PGSSLMODE": "sslmode",
    "PGSSLROOTCERT": "sslrootcert",
    "PGSSLCERT": "sslcert",
    "PGSSLMINPROTOCOLVERSION": "ssl_min_protocol_version",
    "PGCHANNELBINDING": "channel_binding",
}
"""Where Postgres' library looks for what its address leaves out."""


class Pooled(str):
    """The URL of a transaction pooler: what is behind it changes with every transaction, so
    whoever connects to it must ask nothing of a session."""

    __slots__ = ()


class Verified(str):
    """A URL of livemode's: no connection is made with it that somebody on the way could read, or
    answer in the server's place."""

    __slots__ = ()


class VerifiedPooled(Verified, Pooled):
    __slots__ = ()


def unreadable(text: str, schemes: tuple[str, ...]) -> str | None:
    """What is wrong with an address, which should be a URL of one of `schemes`. Said here,
    without the address: client libraries quote it, password and all, when they can't read it."""
    if not text.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        return f"must begin with {schemes[0]}://"
    if re.search(r"[\s\x00]|%(?![0-9A-Fa-f]{2})", text):
        return "holds a space or a bare %: percent-encode special characters (a % is %25)"
    if not all(_HOST.match(host) for host in _authority(text).rpartition("@")[2].split(",")):
        return "has no valid host and port: percent-encode the password"
    return None


def faults(
    addresses: Mapping[str, str],
    *,
    written: Mapping[str, str],
    env: Mapping[str, str],
    pooled: bool,
) -> Iterator[str]:
    """What livemode lacks in the two addresses of the settings, by `database.url` and
    `broker.url`; `written` is what of them stands in the settings file itself."""
    for where in addresses:
        if holds_password(written.get(where, "")):
            yield f"{where}: its password in livemode as ${{NAME}} or ${{file:/path}}"
    parameters = postgres_parameters(addresses["database.url"], env)
    yield from postgres_faults(parameters, pooled=pooled)
    yield from _unreadable_authority(parameters)
    yield from broker_faults(addresses["broker.url"])


def holds_password(text: str) -> bool:
    """Whether a password stands in an address, by its user or among its parameters."""
    user = _authority(text).rpartition("@")[0]
    secret = ("password", "sslpassword", "ssl_password")
    return bool(user.partition(":")[2]) or any(_parameters(text).get(name) for name in secret)


def postgres_parameters(url: str, env: Mapping[str, str]) -> dict[str, str]:
    """What Postgres' library takes from `url` and, where that says nothing, from `env`."""
    found = {name: env[variable] for variable, name in _VARIABLES.items() if variable in env}
    user, _, hosts = _authority(url).rpartition("@")
    if ":" in user:
        found["password"] = unquote(user.partition(":")[2])
    if hosts:
        names = [match[1] for host in hosts.split(",") if (match := _HOST.match(host))]
        found["host"] = ",".join(unquote(name.strip("[]")) for name in names)
    return found | _parameters(url)


def leaves_the_machine(parameters: Mapping[str, str]) -> bool:
    """Whether a server by these parameters of Postgres' library may be another machine. A name
    may be anybody's, `localhost`, too: only paths and loopback addresses are sure."""
    hosts = parameters.get("host", "").split(",")
    addresses = parameters.get("hostaddr", "").split(",")
    return not all(
        _is_here(host) and _is_here(address)
        for host, address in zip_longest(hosts, addresses, fillvalue="")
    )


def postgres_faults(parameters: Mapping[str, str], *, pooled: bool = False) -> Iterator[str]:
    """What livemode lacks in these parameters of Postgres' library: what is given to it and
    what it takes from the environment alike. `pooled`: a pooler answers, which speaks TLS but
    can't bind a password to it. A client that shows a certificate has none to bind; with both,
    the password is still sent to whoever asks for it."""
    if parameters.get("service"):
        yield (
            "database.url: livemode can't look into a service file: write what it says into the"
            " URL, and unset PGSERVICE"
        )
    if not leaves_the_machine(parameters):
        return
    if parameters.get("sslmode") != "verify-full":
        yield (
            "database.url: livemode speaks to another machine by verified TLS only: add"
            " sslmode=verify-full (a Unix socket or 127.0.0.1 needs none)"
        )
    if not parameters.get("sslrootcert"):
        yield (
            "database.url: add sslrootcert=/path/to/ca.pem, the authority that signed the"
            " server's certificate, or sslrootcert=system for a public one"
        )
    certificate_only = parameters.get("sslcert") and not parameters.get("password")
    bindable = not pooled and not certificate_only
    if bindable and parameters.get("channel_binding") != "require":
        yield (
            "database.url: add channel_binding=require, so that a password is worth nothing to"
            " whoever holds another certificate of that name (not asked for behind a pooler,"
            ' database.pulse = "lease", nor of an sslcert without a password)'
        )
    # In any case of letters; and nothing, which is no limit, is not the same as nothing said.
    least = parameters.get("ssl_min_protocol_version", "TLSv1.2")
    if least.lower() not in ("tlsv1.2", "tlsv1.3"):
        yield "database.url: take ssl_min_protocol_version out: TLS below 1.2 can be broken"
    if parameters.get("sslkeylogfile"):
        yield "database.url: take sslkeylogfile out: who reads that file reads the connection"


def _unreadable_authority(parameters: Mapping[str, str]) -> Iterator[str]:
    """Told at once, where the library would only fail to connect, again and again."""
    path = parameters.get("sslrootcert", "system")
    if path != "system" and not os.access(path, os.R_OK):
        yield f"database.url: the file of sslrootcert, {path}, is not there or can't be read"


def broker_faults(url: str) -> Iterator[str]:
    """What livemode lacks in a broker's address."""
    try:
        parts = urlsplit(url)
        host = unquote(parts.hostname or "")
        given = _parameters(url)
    except ValueError:
        yield "broker.url: has no valid host"
        return
    if parts.scheme == "unix" or _is_loopback(host):
        return
    if parts.scheme not in ("rediss", "valkeys", "amqps"):
        yield (
            f"broker.url: livemode speaks to another machine by verified TLS only: write"
            f" {parts.scheme}s:// (a Unix socket or 127.0.0.1 needs none)"
        )
    if parts.scheme.startswith("amqp"):
        if not parts.password or unquote(parts.username or "") == "guest":
            yield (
                "broker.url: livemode needs a user of our own with a password: without one"
                " anybody on that network can keep every payment waiting"
            )
    elif not (parts.password or given.get("password") or given.get("ssl_certfile")):
        yield (
            "broker.url: livemode needs a password (or an ssl_certfile): without one anybody on"
            " that network can keep every payment waiting"
        )


def _authority(url: str) -> str:
    """Users, hosts and ports, as they are written."""
    return re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]


def _parameters(url: str) -> dict[str, str]:
    """The last of each name, as Postgres' library takes them; a plus is no space to it."""
    query = url.partition("?")[2].partition("#")[0].replace("+", "%2B")
    return dict(parse_qsl(query, keep_blank_values=True))


def _is_here(host: str) -> bool:
    """Nothing (then the other of the two names decides, or it is the usual socket), the path of
    a socket, or a loopback address."""
    return host == "" or host.startswith(("/", "@")) or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
