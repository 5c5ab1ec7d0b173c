"""The same for what is read of events and deliveries: whose it is, and nobody else's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.test_bystanders_of_money import attempt, two_deliveries
from tests.webhooks.world import append
from vpay_tasks.core import kinds
from vpay_tasks.store import deliveries, events, listing
from vpay_tasks.store.db import Database
from vpay_tasks.store.events import Wanted

ENDS = {"del_1": ("acme", "main"), "del_2": ("acme", "second"), "del_3": ("other", "main")}


def fanned_out(database: Database) -> dict[str, str]:
    """An event for each of ENDS, by its delivery; and one of each merchant that is pending."""
    with database.transaction() as tx:
        made = {id_: append(tx, merchant_id=merchant) for id_, (merchant, _) in ENDS.items()}
        wanted = [Wanted(made[id_], endpoint, id_) for id_, (_, endpoint) in ENDS.items()]
        assert events.flip(tx, list(made.values()), wanted).deliveries == 3
        for merchant in ("acme", "other"):
            append(tx, event_id=f"evt_pending_{merchant}", merchant_id=merchant)
    return made


@pytest.mark.parametrize(
    ("exception", "held"),
    [
        ("paused = true", True),
        ("circuit_until = now() + interval '1 min'", True),
        ("circuit_until = now() - interval '1 min'", False),
    ],
)
def test_a_delivery_is_read_with_its_own_event_and_held_by_its_own_lane(
    database: Database, exception: str, held: bool
) -> None:
    made = fanned_out(database)
    with database.connection() as connection:
        for queue, lane in ((kinds.DELIVER_WEBHOOK.queue, "acme/second"), ("x", "acme/main")):
            connection.execute(
                "INSERT INTO vpay.lanes (queue, lane) VALUES (%s, %s)", (queue, lane)
            )
        connection.execute(f"UPDATE vpay.lanes SET {exception}".encode())
        for id_, end in ENDS.items():
            found = deliveries.read(connection, id_)
            assert found is not None
            assert (found.merchant_id, found.endpoint_id) == end
            assert found.event_id == made[id_]
            assert made[id_].encode() in found.body
            assert found.held is (held and id_ == "del_2")
        assert deliveries.read(connection, "del_4") is None


def test_a_merchants_list_is_of_its_own_events_once_they_are_listed(database: Database) -> None:
    made = fanned_out(database)
    mine = [made["del_1"], made["del_2"]]
    with database.connection() as connection:
        found = listing.page_listed(connection, "acme", after=0, limit=9)
        assert [event.id for event in found] == mine
        places = [event.list_seq for event in found]
        assert [listing.place_of(connection, "acme", id_) for id_ in mine] == places
        behind = listing.page_listed(connection, "acme", after=places[0], limit=9)
        assert [event.id for event in behind] == mine[1:]
        for id_ in mine:
            body = listing.listed_body(connection, "acme", id_)
            assert body is not None
            assert id_.encode() in body
        for merchant, id_ in (("other", mine[0]), ("acme", "evt_pending_acme")):
            assert listing.place_of(connection, merchant, id_) is None
            assert listing.listed_body(connection, merchant, id_) is None


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"event_id": "evt_mine"}, ["evt_mine"]),
        ({"merchant_id": "shop"}, ["evt_mine"]),
        ({"types": ("customer.created",)}, ["evt_mine"]),
        ({"state": "failed"}, ["evt_mine"]),
        ({"limit": 2}, ["evt_last", "evt_mine"]),
    ],
)
def test_a_person_finds_the_events_that_a_filter_names(
    database: Database, asked: dict[str, Any], found: list[str]
) -> None:
    fanned_out(database)
    with database.transaction() as tx:
        append(tx, event_id="evt_mine", merchant_id="shop", type="customer.created")
        tx.execute(
            "UPDATE vpay.events SET fanout_state = 'failed', list_seq = 99 WHERE id = 'evt_mine'"
        )
        append(tx, event_id="evt_last")
    with database.connection() as connection:
        lines = listing.newest(connection, **{"limit": 9, **asked})
        assert [line.id for line in lines] == found
        (whole,) = listing.newest(connection, event_id="evt_mine", limit=9)
        everything = listing.newest(connection, limit=9)
    assert whole.state == "failed"
    assert len(everything) == 7
    with database.connection() as connection:
        made = {line.id: line.deliveries for line in everything}
        assert sorted(made.values()) == [0, 0, 0, 0, 1, 1, 1]
        since = everything[0].created_at
        assert {line.id for line in listing.newest(connection, since=since, limit=9)} == {
            "evt_mine",
            "evt_last",
        }


def test_receivers_words_are_forgotten_of_the_events_that_are_named_and_once(
    database: Database,
) -> None:
    two_deliveries(database)
    versions = (
        "SELECT id, xmin::text, last_excerpt FROM vpay.webhook_deliveries UNION ALL"
        " SELECT delivery_id, xmin::text, excerpt FROM vpay.delivery_attempts ORDER BY 1, 3"
    )
    with database.connection() as connection:
        for id_ in ("del_1", "del_2"):
            deliveries.record(connection, id_, attempt(500), state="pending", delay=9.0)
        connection.execute(
            "UPDATE vpay.webhook_deliveries SET attempted_at = now() - interval '100 days'"
        )
        ((seq,),) = connection.execute(
            "SELECT seq FROM vpay.events JOIN vpay.webhook_deliveries ON event_id = events.id"
            " WHERE webhook_deliveries.id = 'del_2'"
        ).fetchall()
        deliveries.sweep_words(connection, [seq], keep=90 * 86_400)
        swept = connection.execute(versions).fetchall()
        deliveries.sweep_words(connection, [seq], keep=90 * 86_400)
        assert connection.execute(versions).fetchall() == swept
    assert [(id_, text) for id_, _, text in swept] == [
        ("del_1", "no"),
        ("del_1", "no"),
        ("del_2", ""),
        ("del_2", None),
    ]
