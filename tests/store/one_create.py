"""`python -m tests.store.one_create URL KEY`: one request that makes an object under a key."""

from __future__ import annotations

import sys
from uuid import uuid4

from vpay_tasks.store import idempotency
from vpay_tasks.store.db import Database
from vpay_tasks.store.idempotency import Claimed, New


def create(database: Database, key: str) -> Claimed:
    with database.connection() as connection:
        claimed = idempotency.claim(
            connection, "acme", key, idempotency.fingerprint(b"POST", b"{}"), token=uuid4()
        )
    if isinstance(claimed, New):
        with database.transaction() as tx:
            tx.execute("INSERT INTO public.made DEFAULT VALUES")
            idempotency.complete(tx, "acme", key, claimed.claim, status=201, answer=b"{}")
    return claimed


if __name__ == "__main__":
    create(Database(sys.argv[1], application="one create"), sys.argv[2])
