"""The same for vendors' events: one of them moves, and those in every other state stay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.job_rows import in_the_future
from tests.store.tables import changes, everything
from vpay_tasks.core import kinds
from vpay_tasks.store import inbox, jobs
from vpay_tasks.store.db import Connection, Database
from vpay_tasks.store.inbox import End, Keeping, Kept

STATES = {
    "accepted": "attempts = 0",
    "retrying": "state = 'retrying', attempts = 1, next_attempt_at = now(), last_error = 'then'",
    "done": "state = 'done', verdict = 'granted', ended_at = now() - interval '1 h'",
    "ignored": "state = 'ignored', ended_at = now() - interval '1 h'",
    "dead": "state = 'dead', attempts = 3, reason = 'why', ended_at = now() - interval '1 h'",
}
OPEN, OVER = ("accepted", "retrying"), ("done", "ignored", "dead")


def keep(connection: Connection, event_id: str, **more: Any) -> Kept:
    given: dict[str, Any] = {
        "vendor": "stripe",
        "account": "",
        "type": "t",
        "reference": "r",
        "lane": "l",
        "verified_by": "v",
        "digest": b"d" * 32,
        "body": b"bytes",
        **more,
    }
    return inbox.keep(connection, Keeping(event_id=event_id, **given))


def an_event(connection: Connection, state: str, event_id: str, **more: Any) -> int:
    id_ = keep(connection, event_id, **more).id
    connection.execute(
        f"UPDATE vpay.inbox_events SET {STATES[state]} WHERE id = %s".encode(), (id_,)
    )
    return id_


def bystanders(connection: Connection) -> dict[str, int]:
    return {state: an_event(connection, state, f"of {state}") for state in STATES}


@pytest.mark.parametrize(
    ("body", "digest", "new"),
    [
        (b"bytes", b"d", {}),
        (b"bytes", b"e", {"conflicts": 1}),
        (b"", b"d", {"body": b"again"}),
        (b"", b"e", {"conflicts": 1}),
    ],
)
def test_a_repeat_is_counted_of_its_own_event_and_brings_back_only_its_own_bytes(
    database: Database, body: bytes, digest: bytes, new: dict[str, Any]
) -> None:
    with database.connection() as connection:
        bystanders(connection)
        for other in ({"vendor": "github"}, {"account": "acct"}):
            keep(connection, "mine", **other)
        mine = keep(connection, "mine", body=body)
        before = everything(connection, "inbox_events")
        again = keep(connection, "mine", digest=digest * 32, body=b"again")
        told = changes(before, everything(connection, "inbox_events"))
    assert (again.id, again.same_body) == (mine.id, digest == b"d")
    assert in_the_future(told[mine.id].pop("delivered_at"), 0)
    assert told == {mine.id: {"deliveries": 2, **new}}


@pytest.mark.parametrize("state", STATES)
def test_a_failure_is_counted_once_of_its_own_event_while_it_waits(
    database: Database, state: str
) -> None:
    with database.connection() as connection:
        bystanders(connection)
        mine = inbox.read(connection, an_event(connection, state, "mine"))
        assert mine is not None
        assert (mine.event_id, mine.state) == ("mine", state)
        before = everything(connection, "inbox_events")
        assert inbox.fail(connection, mine, error="now", delay=90) is (state in OPEN)
        assert not inbox.fail(connection, mine, error="now", delay=90)
        told = changes(before, everything(connection, "inbox_events"))
    if state in OPEN:
        assert in_the_future(told[mine.id].pop("next_attempt_at") - timedelta(seconds=60), 30)
        moved = {} if state == "retrying" else {"state": "retrying"}
        assert told.pop(mine.id) == {"attempts": mine.attempts + 1, "last_error": "now", **moved}
    assert told == {}


@pytest.mark.parametrize("state", STATES)
def test_an_event_ends_once_and_alone(database: Database, state: str) -> None:
    with database.connection() as connection:
        bystanders(connection)
        mine = an_event(connection, state, "mine")
        before = everything(connection, "inbox_events")
        assert inbox.end(connection, mine, "dead", reason="no", failed=True) is (state in OPEN)
        assert not inbox.end(connection, mine, "done", verdict="granted", error="late")
        told = changes(before, everything(connection, "inbox_events"))
    if state in OPEN:
        assert in_the_future(told[mine].pop("ended_at"), 0)
        assert told[mine].pop("next_attempt_at", None) is None
        attempts = before[mine]["attempts"] + 1
        assert told.pop(mine) == {"state": "dead", "reason": "no", "attempts": attempts}
    assert told == {}


def test_an_end_says_its_verdict_and_its_error(database: Database) -> None:
    with database.connection() as connection:
        ids = bystanders(connection)
        assert inbox.end(connection, ids["accepted"], "done", verdict="granted", error="but")
        assert inbox.end(connection, ids["retrying"], "ignored")
        found = everything(connection, "inbox_events")
    for state, *told in (("accepted", "granted", "but", 0), ("retrying", None, "then", 1)):
        row = found[ids[state]]
        assert [row["verdict"], row["last_error"], row["attempts"]] == told
        assert row["next_attempt_at"] is None


@pytest.mark.parametrize("state", STATES)
def test_an_event_of_a_state_that_is_named_begins_anew_if_it_has_its_bytes(
    database: Database, state: Any
) -> None:
    with database.connection() as connection:
        bystanders(connection)
        mine = an_event(connection, state, "mine", lane="mine")
        empty = an_event(connection, state, "empty", body=b"")
        before = everything(connection, "inbox_events")
        others = [other for other in inbox.STATES if other != state]
        assert inbox.rearm(connection, mine, others) is None
        assert inbox.rearm(connection, empty, [state]) is None
        assert changes(before, everything(connection, "inbox_events")) == {}
        assert inbox.rearm(connection, mine, [state]) == "mine"
        after = everything(connection, "inbox_events")
    assert set(changes(before, after)) <= {mine}
    began = {"state": "accepted", "attempts": 0}
    nothing = dict.fromkeys(("verdict", "reason", "next_attempt_at", "ended_at"))
    assert {column: after[mine][column] for column in (*began, *nothing)} == {**began, **nothing}


def test_what_became_of_events_is_told_of_those_that_are_asked_about(database: Database) -> None:
    with database.connection() as connection:
        bystanders(connection)
        mine = {state: an_event(connection, state, f"my {state}") for state in STATES}
        del mine["ignored"]
        found = inbox.outcomes(connection, list(mine.values()))
        assert found == {
            mine["retrying"]: End("retrying", None, None),
            mine["done"]: End("done", "granted", None),
            mine["dead"]: End("dead", None, "why"),
        }
        other = keep(connection, "other", body=b"others")
        assert inbox.body(connection, other.id) == b"others"
        assert inbox.body(connection, mine["done"]) == b"bytes"


def test_only_what_waits_without_a_job_of_its_own_gets_one(database: Database) -> None:
    with database.connection() as connection:
        ids = bystanders(connection)
        with database.transaction() as tx:
            key = f"{kinds.INBOX_KEY}{ids['retrying']}"
            jobs.enqueue(tx, kinds.GRANT_INBOX, {}, dedupe_key=key)
        made = inbox.scan(connection)
        found = connection.execute("SELECT id, dedupe_key, lane, payload FROM vpay.jobs").fetchall()
    mine = ids["accepted"]
    assert [row[1:] for row in found if row[0] in made] == [
        (f"{kinds.INBOX_KEY}{mine}", "l", {"inbox_id": mine})
    ]
    assert (len(made), len(found)) == (1, 2)


def test_what_waits_and_what_was_given_up_are_counted_apart(database: Database) -> None:
    with database.connection() as connection:
        for hours, state in enumerate(("retrying", "accepted", "done", "ignored", "dead"), 1):
            id_ = an_event(connection, state, state)
            connection.execute(
                "UPDATE vpay.inbox_events SET received_at = now() - %s * interval '1 h'"
                " WHERE id = %s",
                (hours, id_),
            )
        found = inbox.waiting(connection, cap=10)
    assert (found.open, found.dead) == (2, 1)
    assert found.age is not None
    assert 7_200 <= found.age < 10_800


@pytest.mark.parametrize(
    "asked",
    [
        {"state": "dead"},
        {"vendor": "github"},
        {"type": "mine"},
        {"reference": "mine" * 100},
        {"event_id": "mine"},
    ],
)
def test_a_list_holds_what_its_filter_lets_through(
    database: Database, asked: dict[str, Any]
) -> None:
    with database.connection() as connection:
        an_event(connection, "done", "other")
        kept = {k: v for k, v in asked.items() if k not in ("state", "event_id")}
        mine = an_event(connection, "dead", "mine", **kept)
        last = an_event(connection, "accepted", "another")
        assert [row.id for row in inbox.page(connection, **asked)] == [mine]
        assert [row.id for row in inbox.page(connection, row_id=mine)] == [mine]
        assert [row.id for row in inbox.page(connection, limit=1)] == [last]
        assert [row.id for row in inbox.page(connection, before=last, limit=1)] == [mine]
        assert len(inbox.page(connection)) == 3
