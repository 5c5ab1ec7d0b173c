"""Idempotency keys: one object of many requests, whoever dies in between."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from tests.conftest import Eventually
from tests.store import one_create
from vpay_tasks.errors import Conflict, InvalidRequest
from vpay_tasks.store import idempotency
from vpay_tasks.store.db import Database
from vpay_tasks.store.idempotency import Claimed, InFlight, Mismatch, New, Replay

REQUEST = idempotency.fingerprint(b"POST", b"/v1/payment_intents", b'{"amount":1}')
OTHER = idempotency.fingerprint(b"POST", b"/v1/payment_intents", b'{"amount":2}')


def claim(database: Database, key: str = "k", fingerprint: bytes = REQUEST) -> Claimed:
    with database.connection() as connection:
        return idempotency.claim(connection, "acme", key, fingerprint, token=uuid4())


def complete(database: Database, token: UUID, answer: bytes = b"{}", key: str = "k") -> None:
    with database.transaction() as tx:
        idempotency.complete(tx, "acme", key, token, status=201, answer=answer)


def won(claimed: Claimed) -> UUID:
    assert isinstance(claimed, New), claimed
    return claimed.claim


def move(database: Database, change: str) -> None:
    with database.connection() as connection:
        connection.execute(f"UPDATE vpay.idempotency_keys SET {change}".encode())


def test_the_answer_of_the_first_request_is_said_again(database: Database) -> None:
    token = won(claim(database))
    complete(database, token, b'{"id":"pi_1"}')
    assert claim(database) == Replay(201, b'{"id":"pi_1"}')
    assert claim(database) == Replay(201, b'{"id":"pi_1"}')


def test_a_request_that_is_at_work_is_waited_for(database: Database) -> None:
    won(claim(database))
    again = claim(database)
    assert isinstance(again, InFlight)
    assert 0 < again.retry_after <= idempotency.LEASE_S


def test_another_request_with_the_same_key_is_told_so_before_and_after_the_answer(
    database: Database,
) -> None:
    token = won(claim(database))
    assert claim(database, fingerprint=OTHER) == Mismatch()
    complete(database, token)
    assert claim(database, fingerprint=OTHER) == Mismatch()
    move(database, "lease_until = now() - interval '1 s'")
    assert claim(database, fingerprint=OTHER) == Mismatch()


def test_two_merchants_may_use_one_key(database: Database) -> None:
    won(claim(database))
    with database.connection() as connection:
        won(idempotency.claim(connection, "bakery", "k", OTHER, token=uuid4()))


def test_a_request_whose_process_died_is_done_by_the_next_one_and_by_nobody_else(
    database: Database,
) -> None:
    dead = won(claim(database))
    move(database, "lease_until = now() - interval '1 s'")
    assert claim(database, fingerprint=OTHER) == Mismatch(), "another request of the same key"
    heir = won(claim(database))
    assert isinstance(claim(database), InFlight)
    with pytest.raises(Conflict, match="another one took its place"):
        complete(database, dead)
    complete(database, heir)
    assert isinstance(claim(database), Replay)


def test_what_lost_its_claim_takes_its_object_with_it(database: Database) -> None:
    token = won(claim(database))
    move(database, "lease_until = now() - interval '1 s'")
    won(claim(database))
    with database.connection() as connection:
        connection.execute("CREATE TABLE made (id text)")
    with pytest.raises(Conflict), database.transaction() as tx:
        tx.execute("INSERT INTO made VALUES ('pi_1')")
        idempotency.complete(tx, "acme", "k", token, status=201, answer=b"{}")
    with database.connection() as connection:
        assert connection.execute("SELECT count(*) FROM made").fetchone() == (0,)


def test_a_failed_request_gives_its_key_back_and_only_its_own(database: Database) -> None:
    token = won(claim(database))
    with database.connection() as connection:
        assert not idempotency.give_back(connection, "acme", "k", uuid4())
        assert idempotency.give_back(connection, "acme", "k", token)
        assert not idempotency.give_back(connection, "acme", "k", token)
    complete(database, won(claim(database, fingerprint=OTHER)))
    with database.connection() as connection:
        assert not idempotency.give_back(connection, "acme", "k", token)


def test_an_answer_is_stored_once(database: Database) -> None:
    token = won(claim(database))
    complete(database, token, b"1")
    with pytest.raises(Conflict):
        complete(database, token, b"2")
    assert claim(database) == Replay(201, b"1")


def test_an_expired_key_is_free_and_is_swept(database: Database) -> None:
    complete(database, won(claim(database)))
    won(claim(database, key="young"))
    move(database, "lease_until = now() - interval '2 s', expires_at = now() - interval '1 s'")
    won(claim(database, fingerprint=OTHER))
    with database.connection() as connection:
        assert idempotency.sweep_idempotency_keys(connection) == 1
        assert idempotency.sweep_idempotency_keys(connection) == 0
    assert isinstance(claim(database, fingerprint=OTHER), InFlight)


def test_fifty_parallel_creates_with_one_key_make_one_object(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("CREATE TABLE made (id int GENERATED ALWAYS AS IDENTITY)")

    def create(_: int) -> Claimed:
        claimed = claim(database)
        if isinstance(claimed, New):
            with database.transaction() as tx:
                tx.execute("INSERT INTO made DEFAULT VALUES")
                idempotency.complete(tx, "acme", "k", claimed.claim, status=201, answer=b"{}")
        return claimed

    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(create, range(50)))
    assert sum(isinstance(outcome, New) for outcome in outcomes) == 1
    assert all(isinstance(outcome, New | InFlight | Replay) for outcome in outcomes)
    with database.connection() as connection:
        assert connection.execute("SELECT count(*) FROM made").fetchone() == (1,)


def waits(database: Database) -> bool:
    """Whether anybody waits for a lock."""
    with database.connection() as connection:
        query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return connection.execute(query).fetchone() is not None


def test_creates_whose_processes_die_leave_one_object_too(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.made (id int GENERATED ALWAYS AS IDENTITY)")
    for _ in range(2):
        with database.transaction() as tx:
            # It has its claim, and waits in the transaction of its work.
            tx.execute("LOCK TABLE public.made IN EXCLUSIVE MODE")
            dying = subprocess.Popen([sys.executable, "-m", "tests.store.one_create", dsn, "k"])
            eventually(lambda: waits(database))
            dying.kill()
            dying.wait()
            eventually(lambda: not waits(database))
        with ThreadPoolExecutor(12) as pool:
            outcomes = set(pool.map(lambda _: type(one_create.create(database, "k")), range(50)))
        assert outcomes == {InFlight}
        move(database, "lease_until = now() - interval '1 s'")
    with ThreadPoolExecutor(12) as pool:
        outcomes_ = list(pool.map(lambda _: type(one_create.create(database, "k")), range(50)))
    assert outcomes_.count(New) == 1
    with database.connection() as connection:
        assert connection.execute("SELECT count(*) FROM public.made").fetchone() == (1,)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\x00b", "a\nb", "\ud800"])
def test_a_key_that_is_none_is_refused(database: Database, key: str) -> None:
    with pytest.raises(InvalidRequest):
        claim(database, key=key)


def test_a_fingerprint_knows_where_its_parts_end() -> None:
    assert idempotency.fingerprint(b"ab", b"c") != idempotency.fingerprint(b"a", b"bc")
