"""Client assertions (RFC 7523): each may be used once. Only a hash of its name is kept."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from vpay_tasks.errors import InvalidRequest
from vpay_tasks.store import sql

SQL = sql.load(__name__)

LEEWAY_S: Final = 60.0
"""How far a client's clock may be off. At least the verifier's own leeway: a row that went
earlier would let an assertion in twice."""
PAGE: Final = 1_000
"""Rows of one sweep's transaction."""


def spend(connection: sql.Connection, client_id: str, jti: str, expires_at: datetime) -> bool:
    """True for the first use of the assertion `jti` of a client, False for a replay; also for
    one that ended more than a minute ago by the database's clock. `expires_at` is its `exp`.
    Verify the assertion first. Raises InvalidRequest for a time without a zone."""
    if expires_at.tzinfo is None:
        raise InvalidRequest("expires_at: needs a time zone")
    name = f"{len(client_id)}:{client_id}{jti}".encode("utf-8", "surrogatepass")
    wish = {
        "id": hashlib.sha256(name).digest(),
        "expires_at": expires_at,
        "leeway": LEEWAY_S,
    }
    return bool(sql.run(connection, SQL["spend"], wish))


def sweep_assertions(connection: sql.Connection) -> int:
    """Delete a page of those that nobody can use any more; how many."""
    wish = {"leeway": LEEWAY_S, "page": PAGE}
    return len(sql.run(connection, SQL["sweep_assertions"], wish))
