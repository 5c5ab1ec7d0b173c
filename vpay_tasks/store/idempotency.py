"""Idempotency keys: a merchant may send one request many times, and one object comes of it.

    outcome = idempotency.claim(connection, merchant, key, fingerprint(body), token=uuid4())
    match outcome:
        case New(token):        # do the work, and store its answer in the same transaction
        case Replay(status, answer):  # say it again
        case InFlight(retry_after):   # 409, Retry-After
        case Mismatch():              # 400: another request had this key

The claim is a commit of its own; the work's transaction ends with `complete`. A process that
dies in between leaves a lease that runs out, and a claim that `complete` no longer finds.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from vpay_tasks.errors import Conflict, InvalidRequest
from vpay_tasks.store import sql

SQL = sql.load(__name__)

LEASE_S: Final = 60.0
"""How long a request may be at work. Lower: a slow one is begun a second time beside itself
(and loses at `complete`); higher: a merchant waits longer behind a process that died."""
KEEP_S: Final = 86_400.0
"""A day, as merchants know it from elsewhere: a client that retries for longer is broken."""
PAGE: Final = 1_000
"""Rows of one sweep's transaction: some milliseconds of locks."""


@dataclass(frozen=True)
class New:
    """The key is this request's: do it, and `complete` with `claim` in its transaction."""

    claim: UUID = field(repr=False)


@dataclass(frozen=True)
class Replay:
    """It was done: this was the answer. `status` is HTTP's."""

    status: int
    answer: bytes = field(repr=False)


@dataclass(frozen=True)
class InFlight:
    """It is being done by somebody: ask again after so many seconds."""

    retry_after: float


@dataclass(frozen=True)
class Mismatch:
    """The key stands for another request."""


Claimed = New | Replay | InFlight | Mismatch


def fingerprint(*parts: bytes) -> bytes:
    """32 bytes that tell requests apart: method, path and body, say. Each part counts with
    its length, so that ("ab", "c") is not ("a", "bc")."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def claim(
    connection: sql.Connection,
    merchant_id: str,
    key: str,
    fingerprint: bytes,
    *,
    token: UUID,
    lease: float = LEASE_S,
    keep: float = KEEP_S,
) -> Claimed:
    """Who does the request of `key`. `token` is random, the caller's; `lease` and `keep` are
    seconds. On an autocommit connection: others must see the claim at once. Raises
    InvalidRequest for a key that isn't 1 to 255 printable characters."""
    if not (isinstance(key, str) and 1 <= len(key) <= 255 and key.isprintable()):
        raise InvalidRequest("the idempotency key is not 1 to 255 printable characters")
    wish = {
        "merchant_id": merchant_id,
        "key": key,
        "fingerprint": fingerprint,
        "claim": token,
        "lease": lease,
        "keep": keep,
    }
    # Twice: what stood in the way of the first may be swept before it is looked at.
    for _ in range(2):
        if sql.run(connection, SQL["claim"], wish):
            return New(token)
        if (found := standing(connection, merchant_id, key, fingerprint)) is not None:
            return found
    return InFlight(1.0)


def standing(
    connection: sql.Connection, merchant_id: str, key: str, fingerprint: bytes
) -> Replay | InFlight | Mismatch | None:
    """What stands under the key for such a request; None for nothing."""
    params = {"merchant_id": merchant_id, "key": key, "fingerprint": fingerprint}
    rows = sql.run(connection, SQL["standing"], params)
    if not rows:
        return None
    same, status, answer, left = rows[0]
    if not same:
        return Mismatch()
    return InFlight(left) if status is None else Replay(status, answer)


def complete(
    tx: sql.Connection, merchant_id: str, key: str, token: UUID, *, status: int, answer: bytes
) -> None:
    """Store the answer in the transaction that makes what it speaks of. Raises Conflict when
    the claim was lost meanwhile: another request has it, so the transaction must roll back."""
    where = {"merchant_id": merchant_id, "key": key, "claim": token}
    if not sql.run(tx, SQL["complete"], {**where, "status": status, "answer": answer}):
        raise Conflict("the request took longer than its lease, and another one took its place")


def give_back(connection: sql.Connection, merchant_id: str, key: str, token: UUID) -> bool:
    """Free the key of a request that failed and changed nothing; whether it was still held."""
    where = {"merchant_id": merchant_id, "key": key, "claim": token}
    return bool(sql.run(connection, SQL["give_back"], where))


def sweep_idempotency_keys(connection: sql.Connection) -> int:
    """Delete a page of expired keys; how many."""
    return len(sql.run(connection, SQL["sweep_idempotency_keys"], {"page": PAGE}))
