"""The outbox, and the statements of the fan-out, on real Postgres."""

from __future__ import annotations

import threading

import pytest

from tests.conftest import Eventually
from tests.webhooks.world import append, append_many, event_body, rows
from vpay_tasks.core import kinds
from vpay_tasks.core.events import EventType
from vpay_tasks.errors import Conflict, Internal
from vpay_tasks.store import events
from vpay_tasks.store.db import Abandon, Database
from vpay_tasks.store.events import Flipped, Wanted


def test_the_database_takes_every_documented_type_and_no_other(database: Database) -> None:
    with database.transaction() as tx:
        for type_ in EventType:
            append(tx, type=type_)
    with pytest.raises(Internal, match="type_documented"), database.transaction() as tx:
        append(tx, type="payment_intent.created")
    ((constraint,),) = rows(
        database,
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'type_documented'",
    )
    assert constraint.count("'") == 2 * len(EventType)


def test_the_bytes_come_back_as_they_were_written(database: Database) -> None:
    body = b'{"z":1.10,"a":1e2,"a":"\\u0000","e":"\xc3\xa9"}'
    with database.transaction() as tx:
        event_id = append(tx, body=body)
    assert rows(database, "SELECT body FROM vpay.events WHERE id = %s", event_id) == [(body,)]


def test_an_event_of_a_transaction_that_rolls_back_was_never_there(database: Database) -> None:
    abandon = True
    with database.transaction() as tx:
        append(tx)
        if abandon:
            raise Abandon
    assert rows(database, "SELECT id FROM vpay.events") == []


def test_an_id_that_stands_is_refused(database: Database) -> None:
    (event_id,) = append_many(database, 1)
    with pytest.raises(Conflict), database.transaction() as tx:
        append(tx, event_id=event_id)


def test_an_append_asks_for_the_fan_out_once_its_transaction_has_committed(
    database: Database,
) -> None:
    with database.transaction() as tx:
        append(tx)
        assert tx.hints == {"fanout:events"}


def test_an_append_needs_nothing_of_the_callers_search_path(database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("SET LOCAL search_path = pg_catalog")
        append(tx)
        events.take_turn(tx)
        (event,) = events.page(tx)
        wanted = [Wanted(event.id, "main", "del_1")]
        assert events.flip(tx, [event.id], wanted) == Flipped(1, 1)


def test_a_flip_makes_a_delivery_and_a_due_job_in_the_endpoints_lane(database: Database) -> None:
    (event_id,) = append_many(database, 1)
    with database.transaction() as tx:
        events.take_turn(tx)
        assert events.flip(tx, [event_id], [Wanted(event_id, "main", "del_1")]) == Flipped(1, 1)
        assert tx.hints == {""}
    kind = kinds.DELIVER_WEBHOOK
    assert rows(
        database,
        "SELECT queue, kind, priority, dedupe_key, lane, due, payload, run_at <= now()"
        " FROM vpay.jobs",
    ) == [
        (
            kind.queue,
            kind.name,
            kind.priority,
            kinds.webhook_key("del_1"),
            kinds.endpoint_lane("acme", "main"),
            True,
            {"delivery_id": "del_1"},
            True,
        )
    ]
    assert rows(database, "SELECT state, attempts FROM vpay.webhook_deliveries") == [("pending", 0)]


def test_an_event_that_was_moved_already_makes_no_second_delivery(database: Database) -> None:
    (event_id,) = append_many(database, 1)
    for delivery_id, moved in (("del_1", Flipped(1, 1)), ("del_2", Flipped(0, 0))):
        with database.transaction() as tx:
            events.take_turn(tx)
            wanted = [Wanted(event_id, f"endpoint_of_{delivery_id}", delivery_id)]
            assert events.flip(tx, [event_id], wanted) == moved
    assert rows(database, "SELECT id FROM vpay.webhook_deliveries") == [("del_1",)]
    assert len(rows(database, "SELECT id FROM vpay.jobs")) == 1


def test_an_event_rearmed_after_half_a_fan_out_keeps_the_delivery_it_has(
    database: Database,
) -> None:
    (event_id,) = append_many(database, 1)
    with database.transaction() as tx:
        events.flip(tx, [event_id], [Wanted(event_id, "one", "del_1")])
    rows(database, "UPDATE vpay.events SET fanout_state = 'pending', list_seq = NULL")
    with database.transaction() as tx:
        both = [Wanted(event_id, "one", "del_x"), Wanted(event_id, "two", "del_2")]
        assert events.flip(tx, [event_id], both) == Flipped(1, 1)
    found = rows(database, "SELECT id, endpoint_id FROM vpay.webhook_deliveries ORDER BY id")
    assert found == [("del_1", "one"), ("del_2", "two")]


def test_list_seq_follows_the_order_of_the_events(database: Database) -> None:
    ids = append_many(database, 20)
    with database.transaction() as tx:
        events.take_turn(tx)
        events.flip(tx, list(reversed(ids)), [])
    listed = rows(database, "SELECT id FROM vpay.events ORDER BY list_seq")
    assert [id_ for (id_,) in listed] == ids


def test_a_turn_waits_for_the_one_before_it_to_commit(
    database: Database, eventually: Eventually
) -> None:
    first, second = append_many(database, 2)

    def late() -> None:
        with database.transaction() as tx:
            events.take_turn(tx)
            events.flip(tx, [second], [])

    def waits() -> bool:
        query = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        return bool(rows(database, query))

    thread = threading.Thread(target=late)
    with database.transaction() as tx:
        events.take_turn(tx)
        thread.start()
        eventually(waits)
        events.flip(tx, [first], [])
    thread.join()
    listed = rows(database, "SELECT id FROM vpay.events ORDER BY list_seq")
    assert [id_ for (id_,) in listed] == [first, second]


def test_the_fifth_failure_gives_the_event_up_and_lists_it_and_a_sixth_counts_nothing(
    database: Database,
) -> None:
    (event_id,) = append_many(database, 1)
    given_up = []
    for _ in range(6):
        with database.transaction() as tx:
            events.take_turn(tx)
            given_up.append(events.count_failure(tx, event_id))
    assert given_up == [False, False, False, False, True, False]
    found = rows(
        database, "SELECT fanout_state, fanout_attempts, list_seq IS NULL FROM vpay.events"
    )
    assert found == [("failed", 5, False)]


def test_the_page_reads_the_pending_index_and_not_the_table(database: Database) -> None:
    append_many(database, 1)
    with database.transaction() as tx:
        tx.execute("SET LOCAL enable_seqscan = off")
        text = events.SQL["page"].text
        plan = tx.execute(f"EXPLAIN {text}".encode(), {"page": 100}).fetchall()
    assert any("events_pending" in line for (line,) in plan)
    assert not any("Sort" in line for (line,) in plan)


def test_an_event_as_the_renderer_writes_it_fits(database: Database) -> None:
    with database.transaction() as tx:
        append(tx, body=event_body("evt_x"), customer_id="cus_1")
    assert rows(database, "SELECT customer_id FROM vpay.events") == [("cus_1",)]
