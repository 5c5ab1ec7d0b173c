"""A claim among what other queues, lanes, kinds and transactions have: none of it is taken,
waited for, counted or walked, and none keeps a row from its turn."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.factories import a_job, a_worker, claimed, claimed_ids
from tests.store.job_rows import RUNNING, TOKEN, a_row
from tests.store.tables import without_indexes
from vpay_tasks.store import jobs
from vpay_tasks.store.db import Connection, Database, connect

OLDER = "run_at = now() - interval '2 h'"
PARKED = "parked_at = now(), dead_reason = 'crashed'"


def test_rows_that_somebody_holds_are_passed_over_and_not_waited_for(
    database: Database, dsn: str
) -> None:
    a_worker(database)
    held = [a_row(database), a_row(database, lane="a"), a_row(database, "due = false", lane="b")]
    free = [a_row(database), a_row(database, lane="c"), a_row(database, "due = false", lane="d")]
    with database.transaction() as tx, connect(dsn, application="d") as connection:
        tx.execute("SELECT FROM vpay.jobs WHERE id = ANY(%s) FOR UPDATE", (held,))
        connection.execute("SET lock_timeout = '2 s'")  # or it would wait for ever
        assert sorted(claimed_ids(connection)) == free


def test_what_waits_and_what_runs_takes_room_and_what_other_queues_have_takes_none(
    database: Database,
) -> None:
    worker = a_worker(database, queues=("default", "other"))
    for _ in range(9):
        a_row(database, RUNNING.replace(f"'{TOKEN}'", "gen_random_uuid()"), queue="other")
    with database.connection() as connection:
        connection.execute("UPDATE vpay.jobs SET started_at = NULL")
        for _ in range(20):
            a_job(database)
        first = claimed(connection).messages
        assert len(first) == 7
        assert claimed(connection).messages == []
        for message in first:
            given = [(id_, message.lease) for id_ in message.ids]
            jobs.start(connection, given, run=uuid.uuid4(), worker=worker, run_lease=30, known=[])
        assert claimed(connection).messages == []


@pytest.mark.parametrize(
    ("assignments", "options"),
    [
        ("", {"queue": "other"}),
        (RUNNING, {}),
        (PARKED, {}),
        ("", {"lane": "a"}),
        ("", {"priority": 3}),
        ("run_at = now() + interval '1 h'", {"priority": 0}),
    ],
)
def test_only_what_is_claimed_first_decides_how_many_rows_travel_together(
    database: Database, assignments: str, options: dict[str, Any]
) -> None:
    a_worker(database, threads=1)
    for _ in range(2):
        a_row(database, assignments, kind="alone", **options)
    ids = [a_job(database, "together") for _ in range(6)]
    with database.connection() as connection:
        claim = claimed(connection, batches={"together": 3})
    assert [message.ids for message in claim.messages] == [ids[:3], ids[3:]]


def test_a_lane_has_its_own_rows_and_its_own_exception(database: Database) -> None:
    a_worker(database)
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.lanes (queue, lane, paused, cap) VALUES"
            " ('default', 'a', false, 2), ('default', 'b', true, NULL), ('other', 'c', true, NULL)"
        )
        # All of them older.
        a_row(database, lane="b")
        a_row(database, lane="a", queue="other")
        a_row(database, RUNNING, lane="a", queue="other")
        a_row(database, RUNNING.replace("due = false", "due = true"), lane="a")
        a_row(database, PARKED, lane="a")
        mine = [a_row(database, lane="a"), a_row(database, lane="c")]
        assert claimed_ids(connection) == mine


def many_lanes(connection: Connection, number: int, assignments: str = "due = true") -> None:
    connection.execute(
        "INSERT INTO vpay.jobs (queue, kind, lane, payload)"
        " SELECT 'default', 'a_kind', 'lane ' || lpad(n::text, 3, '0'), '{}'"
        " FROM generate_series(1, %s) AS n",
        (number,),
    )
    connection.execute(f"UPDATE vpay.jobs SET {assignments} WHERE lane LIKE 'lane %'".encode())


def test_the_oldest_goes_first_whatever_way_rows_are_found(database: Database) -> None:
    a_worker(database)
    young = a_row(database)
    a_row(database, lane="a")
    old, lanes_old = a_row(database, OLDER), a_row(database, OLDER, lane="a")
    with database.connection() as connection:
        without_indexes(connection)
        assert claimed_ids(connection) == [old, young, lanes_old]


@pytest.mark.parametrize(
    "assignments",
    [
        "due = true, queue = 'other'",
        RUNNING.replace("due = false", "due = true"),
        f"due = true, {PARKED}",
        "due = false, run_at = now() + interval '1 h'",
    ],
)
def test_lanes_with_nothing_to_take_are_no_steps_of_a_walk(
    database: Database, assignments: str
) -> None:
    a_worker(database)
    first, last = a_row(database, lane="a"), a_row(database, lane="z")
    with database.connection() as connection:
        many_lanes(connection, 200, assignments)
        assert claimed_ids(connection) == [first, last]


def test_a_walk_looks_at_two_hundred_lanes_and_the_next_one_goes_on_to_the_end(
    database: Database,
) -> None:
    a_worker(database)
    last = a_row(database, lane="z")
    with database.connection() as connection:
        many_lanes(connection, 398)
        connection.execute(
            "INSERT INTO vpay.lanes (queue, lane, paused)"
            " SELECT queue, lane, true FROM vpay.jobs WHERE lane <> 'z'"
        )
        first = claimed(connection)
        assert (first.messages, first.next_lane) == ([], "lane 200")
        second = claimed(connection, cursor=first.next_lane)
        assert [message.ids for message in second.messages] == [[last]]
        assert second.next_lane == ""


def test_five_hundred_that_have_waited_longest_are_marked_whatever_is_marked_already(
    database: Database,
) -> None:
    with database.connection() as connection:
        without_indexes(connection)
        many_lanes(connection, 500, "due = true, run_at = now() - interval '2 h'")
        newest = [a_row(database, "run_at = now(), due = false", lane="z") for _ in range(2)]
        many_lanes(connection, 499, "due = false, run_at = now() - interval '1 h'")
        connection.execute("UPDATE vpay.jobs SET due = true WHERE id < %s", (newest[0],))
        claimed(connection)
        waits = connection.execute("SELECT id FROM vpay.jobs WHERE NOT due").fetchall()
    assert waits == [(newest[1],)]
