"""The way to Postgres, by its library's own reading: of the address and the environment before
anything is sent, and of the connection once it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from vpay_tasks.errors import Configuration
from vpay_tasks.transport import Pooled, Verified, leaves_the_machine, postgres_faults

_REMEDIES: Final = {
    "certificate verify failed": "the certificate of whoever answers there has expired, or is"
    " not signed by the authority of sslrootcert: look at it with `openssl s_client -starttls"
    " postgres -connect HOST:PORT`, renew it, or put its authority into that file",
    "does not match host name": "write the name into database.url that the certificate has, or"
    " have one made for the name that is written there",
    "does not support SSL": "switch TLS on there (ssl = on); if it is on, somebody in between"
    " answers in the server's place",
    "root certificate file": "put the authority's certificate there, or write"
    " sslrootcert=system for a public one",
    "channel binding": "store the role's password as SCRAM (password_encryption ="
    " scram-sha-256, then ALTER ROLE … PASSWORD); nothing but a pooler (database.pulse ="
    ' "lease") may end the TLS before Postgres does',
}
"""By words of the library's."""


def look_ahead(url: str) -> None:
    """Raise Configuration if a connection by `url` would go a way that livemode doesn't:
    the settings were looked at as they are written, this is what the library makes of them."""
    if not isinstance(url, Verified):
        return
    options = pq.Conninfo.get_defaults()
    found = {
        one.keyword.decode(): one.val.decode(errors="replace")  # a password may be anything
        for one in options
        if one.val is not None
    }
    try:
        found |= {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        raise Configuration("database.url: Postgres' library can't read it") from None
    if faults := list(postgres_faults(found, pooled=isinstance(url, Pooled))):
        raise Configuration("\n".join(faults))


def look_back(url: str, connection: psycopg.Connection[Any]) -> None:
    """Close a connection of livemode's that left the machine in a way that livemode doesn't go,
    and raise Configuration."""
    if not isinstance(url, Verified):
        return
    found = connection.info.get_parameters()
    if leaves_the_machine(found) and (fault := _fault(url, connection.pgconn, found)):
        connection.close()
        raise Configuration(fault)


def _fault(url: Verified, made: pq.abc.PGconn, found: Mapping[str, str]) -> str | None:
    if not made.ssl_in_use:
        # Nothing is known that would lead here; this is what the promise rests on.
        return "database.url: livemode was connected without TLS"
    # Beside a client certificate the library still looks into its password file, and sends what
    # it finds there to whoever asks for a password.
    bound = isinstance(url, Pooled) or found.get("channel_binding") == "require"
    if made.used_password and not bound:
        return (
            "database.url: the server asked for a password, and got one of the password file"
            " (PGPASSFILE, ~/.pgpass): add channel_binding=require, or have it ask for the client"
            " certificate alone (`cert` in pg_hba.conf) and take the password out of the file"
        )
    return None


def obstacle(error: psycopg.Error) -> str:
    """Why Postgres could not be reached, in one line, and what to do where that is known."""
    told = (str(error) or type(error).__name__).splitlines()[0]
    remedy = next((what for words, what in _REMEDIES.items() if words in told), None)
    return f"Postgres is out of reach: {told}" + (f": {remedy}" if remedy else "")
