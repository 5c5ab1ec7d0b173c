"""The same for lanes: what is done to one endpoint's leaves every other as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.store.job_rows import in_the_future
from tests.store.tables import Rows, changes, everything
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


def after(database: Database, mine: dict[str, Any], call: Callable[[Connection], Any]) -> Rows:
    """What `call` changes where many lanes have been paused and broken, and `mine` is so."""
    with database.connection() as connection:
        for other in OTHERS:
            a_lane(connection, other, **BROKEN)
        a_lane(connection, MINE, **mine)
        before = everything(connection, "lanes", "queue", "lane")
        assert call(connection)
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
