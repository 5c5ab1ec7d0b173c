"""`vpay-tasks events`."""

from __future__ import annotations

from tests.cli.conftest import Call
from tests.webhooks.world import append_many, endpoint, rows, settings
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints


def failed(database: Database) -> str:
    (id_,) = append_many(database, 1)
    rows(
        database,
        "UPDATE vpay.events SET fanout_state = 'failed', fanout_attempts = 5,"
        " list_seq = nextval('vpay.event_list_seq') WHERE id = %s",
        id_,
    )
    return id_


def test_events_are_listed_by_the_state_of_their_fan_out(vpay: Call, database: Database) -> None:
    given_up = failed(database)
    append_many(database, 2)
    fanout.drain(database, Endpoints(settings(endpoint())))
    assert len(vpay("events", "list").out.splitlines()) == 4
    only = vpay("events", "list", "--state", "failed", "--json").json["events"]
    assert [(one["id"], one["attempts"]) for one in only] == [(given_up, 5)]
    assert "failed (5 failures)" in vpay("events", "list", "--since", "1h").out
    assert vpay("events", "list", "--merchant", "other").out == "No event.\n"


def test_an_event_is_shown_with_its_deliveries(vpay: Call, database: Database) -> None:
    (id_,) = append_many(database, 1)
    fanout.drain(database, Endpoints(settings(endpoint())))
    text = vpay("events", "show", id_).out
    assert text.startswith(f"Event {id_} of acme\n")
    assert "main      pending" in text
    assert vpay("events", "show", "evt_none").code == 1


def test_a_given_up_event_is_rearmed_once_and_fanned_out(vpay: Call, database: Database) -> None:
    id_ = failed(database)
    assert vpay("events", "rearm", id_).out == f"{id_} is pending again.\n"
    again = vpay("events", "rearm", id_)
    assert (again.code, "is pending" in again.err) == (1, True)
    assert rows(database, "SELECT fanout_attempts, list_seq FROM vpay.events") == [(0, None)]
    assert fanout.drain(database, Endpoints(settings(endpoint()))).deliveries == 1
    assert vpay("events", "rearm", id_).code == 1
    assert vpay("events", "rearm", "evt_none").code == 1
