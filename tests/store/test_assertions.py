"""Client assertions: each once, and never again after its row was swept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from vpay_tasks.errors import InvalidRequest
from vpay_tasks.store import assertions, clock
from vpay_tasks.store.db import Database


def spend(database: Database, jti: str = "j", *, ends_in: float = 300, client: str = "c") -> bool:
    with database.connection() as connection:
        ends = clock.now(connection) + timedelta(seconds=ends_in)
        return assertions.spend(connection, client, jti, ends)


def test_an_assertion_is_spent_once(database: Database) -> None:
    assert spend(database)
    assert not spend(database)
    assert not spend(database, ends_in=9_000)


def test_assertions_are_told_apart_by_client_and_name(database: Database) -> None:
    assert spend(database, "bc", client="a")
    assert spend(database, "c", client="ab")
    assert spend(database, "x" * 10_000)
    assert spend(database, "\ud800\x00")


def test_of_copies_spent_at_once_one_is_the_first(database: Database) -> None:
    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(lambda _: spend(database), range(20))) == 1


def test_within_the_leeway_an_assertion_that_is_over_may_still_be_spent(
    database: Database,
) -> None:
    assert spend(database, ends_in=-assertions.LEEWAY_S / 2)
    assert not spend(database, ends_in=-assertions.LEEWAY_S / 2)


def test_an_assertion_is_never_spent_again_after_its_row_was_swept(database: Database) -> None:
    assert spend(database)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.client_assertions SET expires_at = now() - interval '1 h'")
        assert assertions.sweep_assertions(connection) == 1
    assert not spend(database, ends_in=-3_600)
    assert not spend(database, ends_in=-assertions.LEEWAY_S - 1)


def test_a_sweep_leaves_what_could_still_be_spent(database: Database) -> None:
    assert spend(database, ends_in=-assertions.LEEWAY_S + 5)
    with database.connection() as connection:
        assert assertions.sweep_assertions(connection) == 0


def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    naive = datetime.now(UTC).replace(tzinfo=None)
    with database.connection() as connection, pytest.raises(InvalidRequest):
        assertions.spend(connection, "c", "j", naive)
