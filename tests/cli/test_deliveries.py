"""`vpay-tasks deliveries`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.conftest import Eventually
from tests.webhooks.world import append_many, endpoint, rows, settings
from vpay_tasks.store import deliveries
from vpay_tasks.store.db import Database
from vpay_tasks.store.deliveries import Attempt
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints

MAIN = "import sys; from vpay_tasks import cli; sys.exit(cli.main(sys.argv[1:]))"


def made(database: Database, count: int, state: str = "exhausted") -> list[str]:
    """So many deliveries to acme/main that ended so, without jobs."""
    append_many(database, count)
    while fanout.drain(database, Endpoints(settings(endpoint()))).again_now:
        pass
    found = rows(database, "SELECT id FROM vpay.webhook_deliveries WHERE state = 'pending'")
    rows(
        database,
        "UPDATE vpay.webhook_deliveries SET state = %s, attempts = 8, ended_at = now()"
        " WHERE state = 'pending'",
        state,
    )
    rows(database, "DELETE FROM vpay.jobs")
    return [id_ for (id_,) in found]


def states(database: Database) -> list[tuple[Any, ...]]:
    query = "SELECT state, count(*) FROM vpay.webhook_deliveries GROUP BY state ORDER BY state"
    return rows(database, query)


def jobs_of(database: Database) -> int:
    ((count,),) = rows(database, "SELECT count(*) FROM vpay.jobs WHERE kind = 'deliver_webhook'")
    return int(count)


def test_the_list_is_filtered_and_says_when_there_is_more(vpay: Call, database: Database) -> None:
    made(database, 3)
    made(database, 2, "delivered")
    assert len(vpay("deliveries", "list").out.splitlines()) == 6
    short = vpay("deliveries", "list", "--limit", "2").out.splitlines()
    assert (len(short), short[-1]) == (4, "(the newest 2; --limit shows more)")
    found = vpay("deliveries", "list", "--state", "delivered", "--json").json["deliveries"]
    assert [one["state"] for one in found] == ["delivered"] * 2
    assert vpay("deliveries", "list", "--merchant", "other").out == "No delivery.\n"
    assert vpay("deliveries", "list", "--type", "payment_intent.canceled").out == "No delivery.\n"


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--since", "yesterday"),
        ("list", "--since", "2026-01-01T00:00:00"),
        ("list", "--since", "0001-01-01T00:00:00+14:00"),
        ("list", "--type", "payment.intent"),
        ("list", "--limit", "0"),
        ("list", "--state", "lost"),
        ("replay",),
        ("replay", "--rate", "0", "--state", "gone"),
        ("replay", "--rate", "nan", "--state", "gone"),
        ("replay", "--missed-by", "acme/main"),
        ("replay", "--missed-by", "acme/main", "--since", "7d", "--state", "gone"),
        ("replay", "del_1", "--merchant", "acme"),
    ],
)
def test_a_choice_that_could_be_meant_in_two_ways_is_a_wrong_call(
    vpay: Call, database: Database, words: tuple[str, ...]
) -> None:
    made(database, 1)
    assert vpay("deliveries", *words).code == 64
    assert states(database) == [("exhausted", 1)]


def test_one_delivery_is_shown_with_every_attempt_and_no_secret(
    vpay: Call, database: Database
) -> None:
    append_many(database, 1)
    fanout.drain(database, Endpoints(settings(endpoint())))
    ((id_,),) = rows(database, "SELECT id FROM vpay.webhook_deliveries")
    for number, status in ((1, None), (2, 503)):
        attempt = Attempt(number, 1_764_000_000.0, 0.25, status, "said so", address="192.0.2.1")
        with database.connection() as connection:
            deliveries.record(connection, id_, attempt, state="pending", delay=10)
    text = vpay("deliveries", "show", id_).out
    assert "attempt 1  2025-11-24 16:00:00 UTC  no answer  250 ms  192.0.2.1" in text
    assert "attempt 2  2025-11-24 16:00:00 UTC  503" in text
    assert "job       ready" in text
    as_json = vpay("deliveries", "show", id_, "--json").json
    assert [one["status"] for one in as_json["log"]] == [None, 503]
    missing = vpay("deliveries", "show", "del_none")
    assert (missing.code, "del_none" in missing.err) == (1, True)


def test_a_dry_run_counts_and_changes_nothing(vpay: Call, database: Database) -> None:
    made(database, 3)
    made(database, 1, "delivered")
    said = vpay("deliveries", "replay", "--merchant", "acme", "--dry-run")
    assert said.out == "3 deliveries would be sent. Nothing was changed.\n"
    assert (states(database), jobs_of(database)) == ([("delivered", 1), ("exhausted", 3)], 0)


@pytest.mark.parametrize("rate", ["100000", "2000"])
def test_what_was_given_up_is_sent_again_by_filter(
    vpay: Call, database: Database, rate: str
) -> None:
    made(database, 150)
    made(database, 2, "poisoned")
    said = vpay("deliveries", "replay", "--endpoint", "main", "--since", "1h", "--rate", rate)
    assert said.out == "150 deliveries are due again.\n"
    assert states(database) == [("pending", 150), ("poisoned", 2)]
    assert jobs_of(database) == 150


def test_named_ones_are_sent_again_whatever_became_of_them(vpay: Call, database: Database) -> None:
    one, two = made(database, 2, "delivered")
    assert vpay("deliveries", "replay", one, one).out == "1 deliveries are due again.\n"
    assert states(database) == [("delivered", 1), ("pending", 1)]
    missing = vpay("deliveries", "replay", two, "del_none")
    assert (missing.code, states(database)) == (1, [("delivered", 1), ("pending", 1)])


def test_a_replay_that_is_stopped_says_how_far_it_came_and_goes_on_when_repeated(
    vpay: Call, database: Database, eventually: Eventually
) -> None:
    made(database, 3)
    words = ("deliveries", "replay", "--merchant", "acme")
    vpay(*words, "--dry-run")  # writes the settings
    slow = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words, "--rate", "0.01"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: states(database) == [("exhausted", 2), ("pending", 1)])
        slow.send_signal(signal.SIGINT)
        out, err = slow.communicate()
    finally:
        slow.kill()
    # The signal may have come between the commit and the count of it.
    told = re.fullmatch(r"\nStopped: at least ([01]) of 3 are due again\.\n", err)
    assert (slow.returncode, out, told is not None) == (130, "", True)
    assert vpay(*words).out == "2 deliveries are due again.\n"
    assert (states(database), jobs_of(database)) == ([("pending", 3)], 3)


def test_one_that_is_in_flight_is_left_alone_and_told(vpay: Call, database: Database) -> None:
    one, _ = made(database, 2)
    vpay("deliveries", "replay", one)
    rows(
        database,
        "UPDATE vpay.jobs SET lease = gen_random_uuid(), locked_by = 'w', locked_at = now(),"
        " lease_until = now() + interval '30 s', started_at = now()",
    )
    said = vpay("deliveries", "replay", "--state", "exhausted", "--state", "pending")
    assert said.out.splitlines() == [
        "1 deliveries are due again.",
        "1 were left alone: an attempt may be in flight. Repeat it for them.",
    ]


def test_all_that_an_endpoint_missed_is_what_failed_and_what_was_before_it(
    vpay: Call, database: Database
) -> None:
    append_many(database, 2)
    fanout.drain(database, Endpoints(settings()))  # nobody was there
    made(database, 3)
    made(database, 1, "delivered")
    words = ("deliveries", "replay", "--missed-by", "acme/main", "--since", "1h")
    assert vpay(*words, "--dry-run").out.splitlines() == [
        "3 deliveries that were given up would be sent. Nothing was changed.",
        "2 events that it was never sent would be sent. Nothing was changed.",
    ]
    assert states(database) == [("delivered", 1), ("exhausted", 3)]
    assert vpay(*words).out == "5 deliveries are due again.\n"
    assert vpay(*words).out == "0 deliveries are due again.\n"
    assert (states(database), jobs_of(database)) == ([("delivered", 1), ("pending", 5)], 5)
    unknown = vpay("deliveries", "replay", "--missed-by", "acme/none", "--since", "1h")
    assert unknown.code == 1
    near = vpay("deliveries", "replay", "--missed-by", "acme/mian", "--since", "1h")
    assert (near.code, "did you mean acme/main?" in near.err) == (1, True)


def test_times_are_utc_whatever_zone_the_database_is_in(vpay: Call, database: Database) -> None:
    (id_,) = made(database, 1)
    ((name,),) = rows(database, "SELECT current_database()")
    rows(database, f"ALTER DATABASE {name} SET timezone = 'Africa/Douala'")
    rows(
        database,
        "UPDATE vpay.webhook_deliveries SET created_at = '2026-01-01T00:30:00Z',"
        " ended_at = '2026-01-01T01:00:00Z'",
    )
    shown = vpay("deliveries", "show", id_)
    assert "made      2026-01-01 00:30:00 UTC" in shown.out
    told = vpay("deliveries", "show", id_, "--json").json
    assert told["created_at"] == "2026-01-01T00:30:00+00:00"
    for since, found in (("2026-01-01T01:30:00+01:00", 1), ("2026-01-01T01:31:00+01:00", 0)):
        listed = vpay("deliveries", "list", "--since", since, "--json").json["deliveries"]
        assert len(listed) == found
    lost_plus = vpay("deliveries", "list", "--since", "2026-01-01T01:30:00 01:00")
    assert (lost_plus.code, "with its zone" in lost_plus.err) == (64, True)
