"""The rate limiter: one statement that counts, replaces, and keeps its own table small."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from vpay_tasks.errors import InvalidRequest
from vpay_tasks.store import ratelimit
from vpay_tasks.store.db import Abandon, Connection, Database
from vpay_tasks.store.ratelimit import attempt_id


def count(database: Database, value: str = "192.0.2.7", window: float = 60) -> int:
    with database.connection() as connection:
        id_ = attempt_id("login", "ip", value)
        return ratelimit.count_attempt(connection, id_, "login by ip", window)


def rows(database: Database) -> int:
    with database.connection() as connection:
        found = connection.execute("SELECT count(*) FROM vpay.rate_limits").fetchone()
    assert found is not None
    return int(found[0])


def elapse(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("UPDATE vpay.rate_limits SET elapses_at = now() - interval '1 s'")


def test_attempts_are_counted_within_their_window(database: Database) -> None:
    assert [count(database) for _ in range(3)] == [1, 2, 3]
    assert count(database, "192.0.2.8") == 1


def test_an_elapsed_window_is_replaced(database: Database) -> None:
    count(database)
    count(database)
    elapse(database)
    assert [count(database) for _ in range(2)] == [1, 2]


def test_a_window_is_never_extended_by_its_attempts(database: Database) -> None:
    count(database, window=60)
    with database.connection() as connection:
        before = connection.execute("SELECT elapses_at FROM vpay.rate_limits").fetchone()
    count(database, window=9_000)
    with database.connection() as connection:
        assert connection.execute("SELECT elapses_at FROM vpay.rate_limits").fetchone() == before


def test_a_replaced_window_has_the_length_that_its_first_attempt_asks_for(
    database: Database,
) -> None:
    count(database, window=60)
    elapse(database)
    count(database, window=9_000)
    with database.connection() as connection:
        ((left,),) = connection.execute(
            "SELECT extract(epoch FROM elapses_at - now()) > 8000 FROM vpay.rate_limits"
        ).fetchall()
    assert left


def test_parallel_attempts_are_each_counted_once(database: Database) -> None:
    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(lambda _: count(database), range(40))) == list(range(1, 41))


def test_after_a_flood_of_fresh_keys_the_table_shrinks_again(database: Database) -> None:
    for number in range(1_000):
        count(database, f"flood {number}")
    assert rows(database) == 1_000
    elapse(database)
    # 32 a time: the 40 attempts of one visitor leave their own row, and nothing else.
    for _ in range(40):
        count(database, "a visitor")
    assert rows(database) == 1


def test_an_attempt_pays_for_at_most_32_of_others(database: Database) -> None:
    for number in range(100):
        count(database, f"flood {number}")
    elapse(database)
    count(database, "a visitor")
    assert rows(database) == 100 - 32 + 1


def test_an_attempt_waits_for_nobody_who_sweeps_or_counts(database: Database) -> None:
    for number in range(3):
        count(database, f"old {number}")
    elapse(database)
    with database.transaction() as tx, database.connection() as connection:
        tx.execute("SELECT FROM vpay.rate_limits LIMIT 2 FOR UPDATE")
        connection.execute("SET lock_timeout = '50ms'")
        id_ = attempt_id("login", "ip", "a visitor")
        assert ratelimit.count_attempt(connection, id_, "login by ip", 60) == 1
        connection.execute("RESET lock_timeout")
    assert rows(database) == 2 + 1


def test_a_count_that_rolls_back_gives_back_what_it_swept(database: Database) -> None:
    count(database, "old")
    elapse(database)

    def counts_in_vain(tx: Connection) -> None:
        ratelimit.count_attempt(tx, attempt_id("login", "ip", "x"), "login by ip", 60)
        raise Abandon

    with database.transaction() as tx:
        counts_in_vain(tx)
    assert rows(database) == 1


def test_floods_that_sweep_each_other_never_deadlock(database: Database) -> None:
    for number in range(300):
        count(database, f"old {number}")
    elapse(database)

    def flood(worker: int) -> int:
        return sum(count(database, f"old {(worker * 7 + n * 13) % 300}") for n in range(60))

    with ThreadPoolExecutor(8) as pool:
        assert all(total >= 60 for total in pool.map(flood, range(8)))


def test_attempts_are_counted_beyond_a_million(database: Database) -> None:
    count(database)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.rate_limits SET attempts = 2147483647")
    assert count(database) == 2_147_483_648


def test_a_sweep_takes_the_elapsed_ones_only(database: Database) -> None:
    count(database, "old")
    elapse(database)
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.rate_limits VALUES (1, now() + interval '1 h', %s, 's')",
            (attempt_id("a", "b", "c"),),
        )
        assert ratelimit.sweep_rate_limits(connection) == 1
        assert ratelimit.sweep_rate_limits(connection) == 0


def test_what_is_counted_is_not_stored(database: Database) -> None:
    count(database, "192.0.2.7")
    with database.connection() as connection:
        ((text,),) = connection.execute("SELECT r::text FROM vpay.rate_limits AS r").fetchall()
    assert "192.0.2.7" not in text


def test_an_action_with_a_colon_could_be_another_ones_dimension() -> None:
    with pytest.raises(InvalidRequest):
        attempt_id("login:ip", "a", "b")
    assert attempt_id("login", "ip", "a:b") != attempt_id("login", "ip", "a")
