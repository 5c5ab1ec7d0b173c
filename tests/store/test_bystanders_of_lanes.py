"""The same for lanes: what is done to one endpoint's leaves every other as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.store.job_rows import in_the_future
from tests.store.tables import Rows, changes, everything
from tests.webhooks.world import append_many, rows
from vpay_tasks.store import lanes
from vpay_tasks.store.db import Connection, Database

MINE = ("webhooks", "acme/main")
OTHERS = (("other", "acme/main"), ("webhooks", "acme/second"), ("webhooks", "other/main"))
RESUMED = {"paused": False, "changed_by": "then", "reason": None}
BROKEN = {"silent": 6, "circuit_trips": 2, "reason": "why"}


def a_lane(connection: Connection, lane: tuple[str, str], **columns: Any) -> None:
    """One that was paused an hour ago, unless `columns` say otherwise."""
    values = {"paused": True, "changed_by": "ann", "cap": 3, **columns}
    connection.execute(
        "INSERT INTO vpay.lanes (queue, lane, changed_at, circuit_until,"
        f" {', '.join(values)}) VALUES (%s, %s, now() - interval '1 h',"
        f" CASE WHEN %s THEN now() END, {', '.join(['%s'] * len(values))})".encode(),
        [*lane, "circuit_trips" in values, *values.values()],
    )


def after(database: Database, mine: dict[str, Any], call: Callable[[Connection], object]) -> Rows:
    """What `call` changes where many lanes have been paused and broken, and `mine` is so."""
    with database.connection() as connection:
        for other in OTHERS:
            a_lane(connection, other, **BROKEN)
        a_lane(connection, MINE, **mine)
        before = everything(connection, "lanes", "queue", "lane")
        assert call(connection) is not False
        return changes(before, everything(connection, "lanes", "queue", "lane"))


@pytest.mark.parametrize(
    "pause",
    [
        lambda own: lanes.pause(own, "acme", "main", changed_by="bob", reason="move"),
        lambda own: lanes.pause_gone(
            own, "acme", "main", begun=4e9, changed_by="bob", reason="move"
        ),
    ],
)
def test_a_lane_that_was_resumed_is_paused_anew_by_whom_and_why(
    database: Database, pause: Callable[[Connection], Any]
) -> None:
    told = after(database, RESUMED, pause)
    assert in_the_future(told[MINE].pop("changed_at"), 0)
    assert told == {MINE: {"paused": True, "changed_by": "bob", "reason": "move"}}


def test_a_resume_ends_what_kept_its_own_lane(database: Database) -> None:
    told = after(database, BROKEN, lambda own: lanes.resume(own, "acme", "main", changed_by="bob"))
    assert in_the_future(told[MINE].pop("changed_at"), 0)
    assert told == {
        MINE: {
            "paused": False, "silent": 0, "circuit_until": None, "circuit_trips": 0,
            "changed_by": "bob", "reason": None,
        }
    }  # fmt: skip


def test_a_resume_of_a_circuit_alone_or_of_a_pause_alone_is_one(database: Database) -> None:
    with database.connection() as connection:
        a_lane(connection, MINE, paused=False, circuit_trips=1)
        a_lane(connection, ("webhooks", "acme/second"))
        for endpoint in ("main", "second"):
            assert lanes.resume(connection, "acme", endpoint, changed_by="bob")
            assert not lanes.resume(connection, "acme", endpoint, changed_by="bob")


def test_a_lane_is_not_paused_because_others_are(database: Database) -> None:
    told = after(database, RESUMED, lambda own: not lanes.is_paused(own, "acme", "main"))
    assert told == {}


def test_a_lane_with_a_past_that_was_never_alerted_is(database: Database) -> None:
    told = after(database, BROKEN, lambda own: lanes.first_to_tell(own, "acme", "main"))
    assert in_the_future(told[MINE].pop("exhausted_told_at"), 0)
    assert told == {MINE: {}}


def deliveries(database: Database, *made: tuple[str, str, str, int | None]) -> None:
    """Merchant, endpoint, state and status: each made two hours ago, and attempted an hour
    ago if it has a status, the first of them last."""
    for at, (event_id, given) in enumerate(
        zip(append_many(database, len(made)), made, strict=True)
    ):
        rows(
            database,
            "INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id, state,"
            " last_status, created_at, ended_at, attempted_at) SELECT %s, %s, m, e, s, n,"
            " now() - interval '2 h', CASE WHEN s <> 'pending' THEN now() END,"
            " CASE WHEN n > 0 THEN now() - interval '1 h' - %s * interval '1 s' END"
            " FROM (VALUES (%s, %s, %s, %s::smallint)) AS given (m, e, s, n)",
            *(f"del_{at}", event_id, at, *given),
        )


def test_how_an_endpoint_stands_is_told_by_its_own_deliveries_and_its_own_lane(
    database: Database,
) -> None:
    deliveries(
        database,
        ("acme", "second", "pending", 500),
        ("other", "main", "pending", 500),
        ("acme", "main", "delivered", 200),
        ("acme", "main", "pending", None),
    )
    with database.connection() as connection:
        for other in OTHERS:
            a_lane(connection, other, **BROKEN)
        (found,) = lanes.standing(connection, [("acme", "main")])
        assert (found.paused, found.changed_by, found.trips) == (False, None, 0)
        assert (found.pending, found.last_status) == (1, 200)
        both = lanes.standing(connection, [("other", "main"), ("acme", "second")])
    assert [(item.merchant_id, item.last_status, item.trips) for item in both] == [
        ("other", 500, 2),
        ("acme", 500, 2),
    ]


def test_an_endpoint_waits_once_while_anything_of_it_is_pending(database: Database) -> None:
    deliveries(
        database,
        *(("a", "done", "delivered", 200), ("b", "first", "pending", None)),
        *(("b", "first", "pending", None), ("c", "done", "exhausted", 500)),
        *(("c", "last", "pending", None), ("d", "done", "gone", 410)),
    )
    with database.connection() as connection:
        assert lanes.waiting_endpoints(connection) == [("b", "first"), ("c", "last")]


def test_caps_are_those_of_the_settings_and_write_nothing_that_stands(database: Database) -> None:
    versions = "SELECT queue, lane, xmin::text FROM vpay.lanes ORDER BY 1, 2"
    kept = {"acme/second": 3, "other/main": 3}
    with database.connection() as connection:
        a_lane(connection, ("webhooks", "acme/none"), cap=None)
    told = after(database, {}, lambda own: lanes.set_caps(own, kept))
    assert told == {MINE: {"cap": None}}
    before = rows(database, versions)
    with database.connection() as connection:
        lanes.set_caps(connection, kept)
    assert rows(database, versions) == before
