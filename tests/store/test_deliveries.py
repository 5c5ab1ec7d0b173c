"""Deliveries: the fences of stamp and record, terminal states."""

from __future__ import annotations

import threading

import pytest

from tests.webhooks.world import append_many, rows
from vpay_tasks.errors import Internal
from vpay_tasks.store import deliveries, events
from vpay_tasks.store.db import Database
from vpay_tasks.store.deliveries import Attempt, Delivery, State
from vpay_tasks.store.events import Wanted

DIGEST = b"d" * 32
ENDED: list[State] = ["delivered", "exhausted", "gone", "poisoned"]


@pytest.fixture
def delivery_id(database: Database) -> str:
    (event_id,) = append_many(database, 1)
    with database.transaction() as tx:
        events.flip(tx, [event_id], [Wanted(event_id, "main", "del_1")])
    return "del_1"


def read(database: Database, delivery_id: str) -> Delivery:
    with database.connection() as connection:
        found = deliveries.read(connection, delivery_id)
    assert found is not None
    return found


def attempt(number: int, status: int | None = 500) -> Attempt:
    return Attempt(number=number, begun=1_764_000_000.5, seconds=0.25, status=status, excerpt="no")


def record(
    database: Database,
    delivery_id: str,
    number: int,
    state: State = "pending",
    delay: float | None = 10.0,
) -> bool:
    with database.connection() as connection:
        recorded = deliveries.record(
            connection, delivery_id, attempt(number), state=state, delay=delay
        )
    return recorded.counted


def test_a_delivery_that_is_not_there_is_none(database: Database) -> None:
    with database.connection() as connection:
        assert deliveries.read(connection, "del_none") is None


def test_a_fresh_delivery_may_be_attempted_now(database: Database, delivery_id: str) -> None:
    found = read(database, delivery_id)
    assert (found.state, found.attempts, found.wait, found.held) == ("pending", 0, 0, False)
    assert (found.digest, found.digest_rev, found.body_rev) == (None, None, 1)
    assert "payment_intent" not in repr(found)


def test_a_failure_is_recorded_once_per_attempt_number(
    database: Database, delivery_id: str
) -> None:
    assert record(database, delivery_id, 1)
    assert not record(database, delivery_id, 1)
    assert not record(database, delivery_id, 3)
    assert record(database, delivery_id, 2)
    found = read(database, delivery_id)
    assert found.attempts == 2
    assert 9 < found.wait <= 10
    logged = rows(database, "SELECT attempt, counted FROM vpay.delivery_attempts ORDER BY id")
    assert logged == [(1, True), (1, False), (3, False), (2, True)]


def test_of_two_failures_recorded_at_once_one_counts(database: Database, delivery_id: str) -> None:
    counted: list[bool] = []

    def late() -> None:
        counted.append(record(database, delivery_id, 1))

    with database.transaction() as tx:
        first = deliveries.record(tx, delivery_id, attempt(1), state="pending", delay=10)
        counted.append(first.counted)
        thread = threading.Thread(target=late)
        thread.start()
    thread.join()
    assert counted == [True, False]
    assert read(database, delivery_id).attempts == 1


def test_a_success_wins_over_a_failure_that_was_recorded_first(
    database: Database, delivery_id: str
) -> None:
    assert record(database, delivery_id, 1)
    assert record(database, delivery_id, 1, "delivered")
    found = read(database, delivery_id)
    assert (found.state, found.attempts, found.wait) == ("delivered", 1, 0)


@pytest.mark.parametrize("ended", ENDED)
def test_nothing_leaves_a_terminal_state(
    database: Database, delivery_id: str, ended: State
) -> None:
    assert record(database, delivery_id, 1, ended)
    for state in ("pending", "delivered", "exhausted", "gone"):
        assert not record(database, delivery_id, 2, state)
    found = read(database, delivery_id)
    with database.connection() as connection:
        assert not deliveries.stamp(connection, found, DIGEST)
        assert not deliveries.poison(connection, found, "changed")
    assert read(database, delivery_id).state == ended
    for other in ("pending", *ENDED):
        at = None if other == "pending" else "now"
        query = "UPDATE vpay.webhook_deliveries SET state = %s, ended_at = %s::timestamptz"
        if other != ended:
            with pytest.raises(Exception, match="nothing leaves a terminal state"):
                rows(database, query, other, at)


def test_a_success_of_an_older_attempt_forgets_no_later_one(
    database: Database, delivery_id: str
) -> None:
    assert record(database, delivery_id, 1)
    assert record(database, delivery_id, 2)
    assert record(database, delivery_id, 1, "delivered")
    assert read(database, delivery_id).attempts == 2


def test_a_stamp_is_made_once_per_revision_and_never_by_a_run_that_was_overtaken(
    database: Database, delivery_id: str
) -> None:
    fresh = read(database, delivery_id)
    with database.connection() as connection:
        assert deliveries.stamp(connection, fresh, DIGEST)
        assert not deliveries.stamp(connection, fresh, b"e" * 32)
    found = read(database, delivery_id)
    assert (found.digest, found.digest_rev) == (DIGEST, 1)
    rows(database, "UPDATE vpay.events SET body = '{}', body_rev = 2")
    newer = read(database, delivery_id)
    assert record(database, delivery_id, 1)
    with database.connection() as connection:
        assert not deliveries.stamp(connection, newer, b"e" * 32)
        assert deliveries.stamp(connection, read(database, delivery_id), b"e" * 32)
    assert read(database, delivery_id).digest_rev == 2


def test_recording_never_stamps(database: Database, delivery_id: str) -> None:
    with database.connection() as connection:
        one = Attempt(1, 1_764_000_000.0, 0.1, 500, "no", digest=DIGEST, key_ids=["abc"])
        assert deliveries.record(connection, delivery_id, one, state="pending", delay=1).counted
    assert read(database, delivery_id).digest is None
    assert rows(database, "SELECT digest, key_ids FROM vpay.delivery_attempts") == [
        (DIGEST, ["abc"])
    ]


def test_a_digest_must_be_a_sha256(database: Database, delivery_id: str) -> None:
    with database.connection() as connection, pytest.raises(Internal, match="digest_is_sha256"):
        deliveries.stamp(connection, read(database, delivery_id), b"short")


def test_only_the_end_of_a_deliverys_life_touches_an_index(
    database: Database, delivery_id: str
) -> None:
    with database.transaction() as tx:
        found = deliveries.read(tx, delivery_id)
        assert found is not None
        deliveries.stamp(tx, found, DIGEST)
        for number in range(1, 5):
            state: State = "pending" if number < 4 else "exhausted"
            deliveries.record(tx, delivery_id, attempt(number), state=state, delay=10)
        query = (
            "SELECT pg_stat_get_xact_tuples_updated(oid), pg_stat_get_xact_tuples_hot_updated(oid)"
            " FROM pg_class WHERE oid = 'vpay.webhook_deliveries'::regclass"
        )
        assert tx.execute(query.encode()).fetchall() == [(5, 4)]


def test_a_rung_is_elapsed_seconds_also_where_clocks_are_turned(
    database: Database, delivery_id: str
) -> None:
    with database.connection() as connection:
        connection.execute(b"SET timezone = 'America/New_York'")
        one = Attempt(1, 1_764_000_000.0, 0.1, 500, "no")
        half_a_year = 182 * 86_400.0  # one turn of the clocks lies between
        deliveries.record(connection, delivery_id, one, state="pending", delay=half_a_year)
    exact = (
        "SELECT extract(epoch FROM next_attempt_at) - extract(epoch FROM attempted_at)"
        " FROM vpay.webhook_deliveries"
    )
    assert rows(database, exact) == [(half_a_year,)]
