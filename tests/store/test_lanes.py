"""Lanes of endpoints: pauses, circuits, caps, and who is told."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.factories import a_worker, change, claimed_ids
from tests.webhooks.world import append_many, rows
from vpay_tasks.core import kinds
from vpay_tasks.store import deliveries, events, jobs, lanes
from vpay_tasks.store.db import Database
from vpay_tasks.store.deliveries import Attempt
from vpay_tasks.store.events import Wanted
from vpay_tasks.store.lanes import Opened, Pause


def pause(database: Database, begun: float) -> Pause:
    with database.transaction() as tx:
        return lanes.pause_gone(
            tx, "acme", "main", begun=begun, changed_by="receiver", reason="410"
        )


def now(database: Database) -> float:
    ((seconds,),) = rows(database, "SELECT extract(epoch FROM clock_timestamp())::float8")
    return float(seconds)


def test_an_endpoint_is_paused_once_and_the_transition_is_told(database: Database) -> None:
    begun = now(database)
    assert pause(database, begun) is Pause.PAUSED
    assert pause(database, now(database)) is Pause.ALREADY
    assert pause(database, begun) is Pause.ALREADY
    found = rows(database, "SELECT queue, lane, paused, changed_by, reason FROM vpay.lanes")
    assert found == [("webhooks", "acme/main", True, "receiver", "410")]


def test_an_endpoint_that_was_resumed_after_the_attempt_began_stays_resumed(
    database: Database,
) -> None:
    begun = now(database)
    pause(database, begun)
    rows(database, "UPDATE vpay.lanes SET paused = false, changed_at = now()")
    assert pause(database, begun) is Pause.RESUMED_SINCE
    assert pause(database, now(database)) is Pause.PAUSED


def caps(database: Database) -> list[tuple[object, ...]]:
    return rows(database, "SELECT lane, cap, paused FROM vpay.lanes ORDER BY lane")


def test_caps_come_from_the_settings_and_leave_pauses_alone(database: Database) -> None:
    pause(database, now(database))
    with database.transaction() as tx:
        lanes.set_caps(tx, {"acme/main": 2, "acme/second": 8})
    assert caps(database) == [("acme/main", 2, True), ("acme/second", 8, False)]
    with database.transaction() as tx:
        lanes.set_caps(tx, {"acme/second": 3})
    assert caps(database) == [("acme/main", None, True), ("acme/second", 3, False)]
    with database.transaction() as tx:
        lanes.set_caps(tx, {})
    assert caps(database) == [("acme/main", None, True), ("acme/second", None, False)]


def test_a_cap_set_during_an_attempt_is_no_resume(database: Database) -> None:
    begun = now(database)
    with database.transaction() as tx:
        lanes.set_caps(tx, {"acme/main": 2})
    assert pause(database, begun) is Pause.PAUSED


def lane(database: Database) -> tuple[Any, ...]:
    """silent, trips, whole seconds to the next probe."""
    query = (
        "SELECT silent, circuit_trips, round(extract(epoch FROM circuit_until - now()))::integer"
        " FROM vpay.lanes WHERE lane = 'acme/main'"
    )
    (found,) = rows(database, query) or [(0, 0, None)]
    return found


def silence(database: Database, times: int = 1, *, begun: float | None = None) -> Opened | None:
    opened = None
    for _ in range(times):
        with database.transaction() as tx:
            at = now(database) if begun is None else begun
            opened = lanes.note_silence(tx, "acme", "main", begun=at)
    return opened


def probe_is_due(database: Database) -> None:
    rows(database, "UPDATE vpay.lanes SET circuit_until = now()")


@pytest.fixture
def delivery_id(database: Database) -> str:
    (event_id,) = append_many(database, 1)
    with database.transaction() as tx:
        events.flip(tx, [event_id], [Wanted(event_id, "main", "del_1")])
    return "del_1"


def hear(database: Database, status: int, number: int = 1) -> bool:
    """An answer is recorded; whether it closed the circuit."""
    attempt = Attempt(number=number, begun=1_764_000_000.5, seconds=1, status=status, excerpt="")
    with database.connection() as connection:
        return deliveries.record(connection, "del_1", attempt, state="pending", delay=1).closed


def test_four_silences_open_nothing_and_the_fifth_opens_for_a_minute(database: Database) -> None:
    assert silence(database, 4) is None
    assert lane(database) == (4, 0, None)
    assert silence(database) == Opened(1, 60)
    assert lane(database) == (5, 1, 60)


@pytest.mark.parametrize("status", [200, 302, 410, 500])
def test_any_answer_begins_the_count_anew(
    database: Database, delivery_id: str, status: int
) -> None:
    silence(database, 4)
    assert not hear(database, status)
    assert silence(database, 4) is None
    assert lane(database) == (4, 0, None)


def test_each_silent_probe_doubles_the_time_up_to_a_quarter_of_an_hour(database: Database) -> None:
    silence(database, 5)
    found = []
    for _ in range(7):
        probe_is_due(database)
        opened = silence(database)
        assert opened is not None
        found.append((opened.trips, round(opened.seconds)))
    assert found == [(2, 120), (3, 240), (4, 480), (5, 900), (6, 900), (7, 900), (8, 900)]


def test_a_million_silent_probes_stay_at_a_quarter_of_an_hour(database: Database) -> None:
    silence(database, 5)
    rows(database, "UPDATE vpay.lanes SET circuit_trips = 1000000, silent = 1000000")
    probe_is_due(database)
    assert silence(database) == Opened(1_000_001, 900)


def test_attempts_that_were_under_way_when_it_opened_prolong_nothing(database: Database) -> None:
    begun = now(database)
    silence(database, 5)
    assert silence(database, 4, begun=begun) is None
    probe_is_due(database)
    assert silence(database, 4, begun=begun) is None
    assert lane(database)[:2] == (5, 1)


@pytest.mark.parametrize("status", [200, 302, 410, 500])
def test_the_first_answer_closes_the_circuit_and_says_so_once(
    database: Database, delivery_id: str, status: int
) -> None:
    silence(database, 5)
    assert hear(database, status)
    assert lane(database) == (0, 0, None)
    assert not hear(database, status, 2)


def test_an_answer_that_comes_too_late_to_count_closes_it_too(
    database: Database, delivery_id: str
) -> None:
    silence(database, 5)
    rows(database, "UPDATE vpay.webhook_deliveries SET attempts = 3")
    assert hear(database, 500)
    assert rows(database, "SELECT attempts FROM vpay.webhook_deliveries") == [(3,)]


def test_of_two_answers_at_once_one_closes_it(database: Database, delivery_id: str) -> None:
    silence(database, 5)
    found: list[bool] = []
    late = threading.Thread(target=lambda: found.append(hear(database, 500, 2)))
    attempt = Attempt(number=1, begun=1_764_000_000.5, seconds=1, status=500, excerpt="")
    with database.transaction() as tx:
        found.append(deliveries.record(tx, "del_1", attempt, state="pending", delay=1).closed)
        late.start()
    late.join()
    assert found == [True, False]


def test_an_answer_waits_for_its_lane_and_holds_no_delivery_meanwhile(
    database: Database, delivery_id: str, eventually: Eventually
) -> None:
    silence(database, 5)
    late = threading.Thread(target=hear, args=(database, 500))
    with database.transaction() as tx:
        tx.execute("SELECT FROM vpay.lanes FOR UPDATE")
        late.start()
        query = (
            "SELECT pid FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        eventually(lambda: tx.execute(query).fetchall())
        # Whoever has the lane may take the delivery next, as everywhere.
        tx.execute("SELECT FROM vpay.webhook_deliveries FOR UPDATE NOWAIT")
    late.join()
    assert rows(database, "SELECT attempts FROM vpay.webhook_deliveries") == [(1,)]


def test_silences_at_once_are_all_counted_and_one_opens(database: Database) -> None:
    barrier = threading.Barrier(8)
    found: list[Opened | None] = []

    def one() -> None:
        begun = now(database)
        barrier.wait()
        found.append(silence(database, begun=begun))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one is not None for one in found) == 1
    assert lane(database)[:2] == (5, 1)


def test_healthy_traffic_writes_no_lane(database: Database, delivery_id: str) -> None:
    silence(database)
    hear(database, 500)
    rows(database, "VACUUM vpay.lanes")
    query = "SELECT xmin::text, ctid::text FROM vpay.lanes"
    before = rows(database, query)
    for number in range(2, 6):
        hear(database, 500, number)
    assert rows(database, query) == before


def test_a_failed_transaction_forgets_the_silence_with_its_record(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction() as tx:
        lanes.note_silence(tx, "acme", "main", begun=1.0)
        raise ZeroDivisionError
    assert lane(database) == (0, 0, None)


def a_backlog(database: Database, rows_: int) -> list[int]:
    with database.transaction() as tx:
        found = [
            jobs.enqueue(tx, kinds.DELIVER_WEBHOOK, {"delivery_id": f"d{n}"}, lane="acme/main").id
            for n in range(rows_)
        ]
    return [id_ for id_ in found if id_ is not None]


def test_an_open_circuit_keeps_the_backlog_probes_with_one_and_resumes_at_the_answer(
    database: Database, delivery_id: str
) -> None:
    rows(database, "DELETE FROM vpay.jobs")
    a_worker(database, threads=8, queues=("webhooks",))
    backlog = a_backlog(database, 6)
    silence(database, 5)
    with database.connection() as connection:
        assert claimed_ids(connection, "webhooks") == []
        probe_is_due(database)
        (probe,) = claimed_ids(connection, "webhooks")
        assert claimed_ids(connection, "webhooks") == []
        silence(database)
        change(
            database,
            "lease = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL",
            probe,
        )
        assert claimed_ids(connection, "webhooks") == []
        assert hear(database, 500)
        resumed = claimed_ids(connection, "webhooks")
        assert (len(resumed), set(resumed) <= set(backlog)) == (4, True)
    assert rows(database, "SELECT count(*) FROM vpay.jobs") == [(6,)]


def test_a_silence_is_no_change_by_a_person(database: Database) -> None:
    begun = now(database)
    silence(database, 5)
    assert pause(database, begun) is Pause.PAUSED


def test_an_operators_pause_and_resume_say_whether_they_changed_anything(
    database: Database,
) -> None:
    with database.connection() as connection:
        assert lanes.pause(connection, "acme", "main", changed_by="ann", reason="move")
        assert not lanes.pause(connection, "acme", "main", changed_by="bob", reason="other")
        query = "SELECT paused, changed_by, reason FROM vpay.lanes"
        assert rows(database, query) == [(True, "ann", "move")]
        assert lanes.resume(connection, "acme", "main", changed_by="bob")
        assert not lanes.resume(connection, "acme", "main", changed_by="bob")
        assert not lanes.resume(connection, "acme", "other", changed_by="bob")
    assert rows(database, query) == [(False, "bob", None)]


def test_a_resume_closes_the_circuit_too(database: Database) -> None:
    silence(database, 5)
    with database.connection() as connection:
        assert lanes.resume(connection, "acme", "main", changed_by="bob")
    assert lane(database) == (0, 0, None)


def test_one_alert_in_a_day_for_each_endpoint_of_each_merchant(database: Database) -> None:
    def told(merchant: str, endpoint: str) -> bool:
        with database.connection() as connection:
            return lanes.first_to_tell(connection, merchant, endpoint)

    ends = [("acme", "main"), ("acme", "second"), ("other", "main")]
    assert [told(*end) for end in ends] == [True, True, True]
    assert [told(*end) for end in ends * 2] == [False] * 6
    at = "UPDATE vpay.lanes SET exhausted_told_at = exhausted_told_at - interval '23 h 59 min'"
    rows(database, at)
    assert not told("acme", "main")
    rows(database, at)
    assert told("acme", "main")
