"""The same for idempotency keys: a key is one merchant's, and every other stands."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from tests.store.job_rows import in_the_future
from tests.store.tables import changes, everything
from vpay_tasks.errors import Conflict
from vpay_tasks.store import idempotency
from vpay_tasks.store.db import Connection, Database
from vpay_tasks.store.idempotency import InFlight, Mismatch, New, Replay

REQUEST = idempotency.fingerprint(b"POST", b"{}")
OTHER = idempotency.fingerprint(b"POST", b"[]")
MINE = ("acme", "mine")


def claim(
    connection: Connection, key: str = "mine", merchant: str = "acme", request: bytes = REQUEST
) -> idempotency.Claimed:
    return idempotency.claim(connection, merchant, key, request, token=uuid4())


def a_key(connection: Connection, state: str, key: str = "mine", merchant: str = "acme") -> UUID:
    """Its claim."""
    claimed = claim(connection, key, merchant)
    assert isinstance(claimed, New)
    where = "WHERE merchant_id = %s AND key = %s"
    if "answered" in state:
        connection.execute(
            f"UPDATE vpay.idempotency_keys SET status = 201, answer = 'ok' {where}".encode(),
            (merchant, key),
        )
    over = {"let go": "lease_until = now()", "expired": "lease_until = now(), expires_at = now()"}
    for word, assignments in over.items():
        if word in state:
            connection.execute(
                f"UPDATE vpay.idempotency_keys SET {assignments} {where}".encode(),
                (merchant, key),
            )
    return claimed.claim


def bystanders(connection: Connection) -> None:
    for n, (key, merchant) in enumerate((("mine", "other"), ("second", "acme"))):
        a_key(connection, "let go" if n else "under way", key, merchant)


@pytest.mark.parametrize("state", ["under way", "let go", "answered", "let go, answered"])
@pytest.mark.parametrize("expired", ["", ", expired"])
@pytest.mark.parametrize("request_", [REQUEST, OTHER], ids=["same", "other"])
def test_a_key_is_taken_when_it_is_free_and_what_it_holds_is_told_otherwise(
    database: Database, state: str, expired: str, request_: bytes
) -> None:
    with database.connection() as connection:
        bystanders(connection)
        a_key(connection, state + expired)
        before = everything(connection, "idempotency_keys", "merchant_id", "key")
        found = claim(connection, request=request_)
        told = changes(before, everything(connection, "idempotency_keys", "merchant_id", "key"))
    if expired or (state == "let go" and request_ == REQUEST):
        assert isinstance(found, New)
        assert told[MINE].pop("claim") == found.claim
        for column in ("created_at", "lease_until", "expires_at"):
            assert told[MINE].pop(column)
        new = {"fingerprint": OTHER} if request_ == OTHER else {}
        assert told == {
            MINE: {**new, **({"status": None, "answer": None} if "answered" in state else {})}
        }
        return
    assert told == {}
    if request_ == OTHER:
        assert found == Mismatch()
    elif "answered" in state:
        assert found == Replay(201, b"ok")
    else:
        assert isinstance(found, InFlight)


@pytest.mark.parametrize("state", ["under way", "let go", "answered"])
def test_an_answer_or_a_way_back_is_its_own_claims_and_once(database: Database, state: str) -> None:
    with database.connection() as connection:
        bystanders(connection)
        mine = a_key(connection, state)
        before = everything(connection, "idempotency_keys", "merchant_id", "key")
        with pytest.raises(Conflict):
            idempotency.complete(connection, *MINE, uuid4(), status=201, answer=b"new")
        assert not idempotency.give_back(connection, *MINE, uuid4())
        connection.execute("BEGIN")
        assert idempotency.give_back(connection, *MINE, mine) is (state != "answered")
        told = changes(before, everything(connection, "idempotency_keys", "merchant_id", "key"))
        connection.execute("ROLLBACK")
        assert told == ({} if state == "answered" else {MINE: {"gone": True}})
        if state == "answered":
            with pytest.raises(Conflict):
                idempotency.complete(connection, *MINE, mine, status=500, answer=b"new")
            new: dict[tuple[str, str], dict[str, object]] = {}
        else:
            idempotency.complete(connection, *MINE, mine, status=201, answer=b"new")
            new = {MINE: {"status": 201, "answer": b"new"}}
        told = changes(before, everything(connection, "idempotency_keys", "merchant_id", "key"))
        assert told == new


def test_a_claim_lasts_for_its_lease_and_is_kept_for_a_day(database: Database) -> None:
    with database.connection() as connection:
        a_key(connection, "under way")
        row = everything(connection, "idempotency_keys", "merchant_id", "key")[MINE]
    assert in_the_future(row["lease_until"], 60)
    assert in_the_future(row["expires_at"], 86_400)
