"""Attempts counted in windows, by the database's clock: one statement, and no memory of whom."""

from __future__ import annotations

import hashlib
from typing import Final

from vpay_tasks.errors import InvalidRequest
from vpay_tasks.store import sql

SQL = sql.load(__name__)

PAGE: Final = 1_000
"""Rows of one sweep's transaction."""


def attempt_id(action: str, dimension: str, value: str) -> bytes:
    """What an attempt is counted under: `attempt_id("login", "ip", "192.0.2.7")`. 32 bytes,
    from which nobody reads the value. Raises InvalidRequest for a colon in the first two."""
    if ":" in action + dimension:
        raise InvalidRequest("action and dimension hold no colon")
    text = f"{action}:{dimension}:{value}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def count_attempt(connection: sql.Connection, id: bytes, scope: str, window: float) -> int:  # noqa: A002 - the contract's word
    """Count an attempt; how many there were in its window of `window` seconds, this one
    included. A window begins with its first attempt, is never extended, and once elapsed is
    replaced. `scope` is a label for people. On an autocommit connection, or the attempt is
    forgotten with whatever rolls back."""
    wish = {"id": id, "scope": scope, "window": window}
    ((attempts,),) = sql.run(connection, SQL["count_attempt"], wish)
    return int(attempts)


def sweep_rate_limits(connection: sql.Connection) -> int:
    """Delete a page of elapsed windows; how many."""
    return len(sql.run(connection, SQL["sweep_rate_limits"], {"page": PAGE}))
