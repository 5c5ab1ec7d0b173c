"""The backstop: a live charge that lost its poll gets one, and a parked poll is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.payment_kit import make_charge, opened, scalar
from tests.store.test_payment_rows import LIVE, TERMINAL
from tests.webhooks.world import HandRun, context, rows
from vpay_tasks.config import Settings
from vpay_tasks.core import kinds
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.core.job import Again, Answer, Done
from vpay_tasks.handlers.context import Context
from vpay_tasks.handlers.scan_live_charges import scan_live_charges
from vpay_tasks.store import scans
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoints

OLD = 601.0
SPENT = -1.0


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    with opened(dsn) as database:
        yield database


@pytest.fixture
def ctx(database: Database) -> Context:
    return context(database, Endpoints(Settings()))


def a_charge(
    database: Database, *, state: State = State.PENDING, age: float = OLD, with_job: bool = False
) -> Charge:
    charge = make_charge(database, state=state, with_job=with_job)
    rows(
        database,
        "UPDATE vpay.charges SET updated_at = clock_timestamp() - make_interval(secs => %s)"
        " WHERE id = %s",
        age,
        charge.id,
    )
    return charge


def scan(ctx: Context, *, budget: float = 60.0) -> Answer | None:
    return scan_live_charges(HandRun(ctx.db, deadline=time.monotonic() + budget), ctx)


def polls(database: Database) -> list[str]:
    return sorted(key for (key,) in rows(database, "SELECT dedupe_key FROM vpay.jobs"))


def park(database: Database, charge: Charge) -> None:
    rows(
        database,
        "UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'by_operator' WHERE dedupe_key = %s",
        kinds.poll_key(charge.id),
    )


def alerts(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [getattr(record, "fields", {}) for record in caplog.records]
    return [fields for fields in found if fields.get("alert")]


@pytest.mark.parametrize("state", LIVE)
def test_a_live_charge_without_a_poll_gets_one_once(
    database: Database, ctx: Context, caplog: pytest.LogCaptureFixture, state: State
) -> None:
    charge = a_charge(database, state=state)
    assert [scan(ctx), scan(ctx)] == [Done(), Done()]
    ((queue, kind, priority, payload, due),) = rows(
        database, "SELECT queue, kind, priority, payload, run_at <= now() FROM vpay.jobs"
    )
    assert (queue, kind, priority) == ("payments", "poll_charge", kinds.POLL_CHARGE.priority)
    assert (payload, due) == ({"charge_id": charge.id}, True)
    assert polls(database) == [kinds.poll_key(charge.id)]
    (told,) = alerts(caplog)
    assert (told["number"], told["charge_ids"]) == (1, [charge.id])


@pytest.mark.parametrize("state", TERMINAL)
def test_a_charge_that_has_ended_needs_no_poll(
    database: Database, ctx: Context, state: State
) -> None:
    a_charge(database, state=state)
    assert scan(ctx) == Done()
    assert polls(database) == []


def test_a_charge_that_was_touched_lately_is_let_be(database: Database, ctx: Context) -> None:
    a_charge(database, age=590)
    assert scan(ctx) == Done()
    assert polls(database) == []


def test_a_poll_that_is_there_stays_as_it_is(
    database: Database, ctx: Context, caplog: pytest.LogCaptureFixture
) -> None:
    a_charge(database, with_job=True)
    rows(database, "UPDATE vpay.jobs SET run_at = now() + interval '1 h', failures = 7")
    before = rows(database, "SELECT id, run_at, failures, claims FROM vpay.jobs")
    assert scan(ctx) == Done()
    assert rows(database, "SELECT id, run_at, failures, claims FROM vpay.jobs") == before
    assert alerts(caplog) == []


def test_polls_that_are_parked_are_counted_and_twenty_are_named(
    database: Database, ctx: Context, caplog: pytest.LogCaptureFixture
) -> None:
    parked = [a_charge(database, age=OLD + n, with_job=True) for n in range(23)]
    for charge in parked:
        park(database, charge)
    # Not among them: one whose poll is parked and that has ended; one that has just been
    # asked about; another kind of job.
    park(database, a_charge(database, state=State.FAILED, with_job=True))
    park(database, a_charge(database, age=5, with_job=True))
    rows(
        database,
        "INSERT INTO vpay.jobs (queue, kind, payload, dedupe_key, parked_at, dead_reason)"
        " SELECT 'payments', 'mine', '{}', 'mine:' || id, now(), 'by_task' FROM vpay.charges",
    )
    before = polls(database)
    for _ in range(2):
        assert scan(ctx) == Done()
        told = alerts(caplog)[-1]
        assert told["action"] == "scan_live_parked"
        assert told["number"] == 23
        # The longest untouched first.
        assert told["charge_ids"] == [charge.id for charge in parked[:2:-1]]
    assert polls(database) == before


def test_a_walk_goes_past_any_number_of_charges_that_have_a_poll(
    database: Database, ctx: Context
) -> None:
    many(database, 2 * scans.PAGE + 1)
    lost = a_charge(database)
    assert scan(ctx) == Done()
    assert kinds.poll_key(lost.id) in polls(database)


def test_pages_end_within_an_instant_without_losing_a_charge(
    database: Database, ctx: Context
) -> None:
    many(database, 2 * scans.PAGE + 1, with_jobs=False)
    assert scan(ctx) == Done()
    assert len(polls(database)) == 2 * scans.PAGE + 1


def test_a_walk_that_is_cut_short_runs_again_at_once_only_if_something_moved(
    database: Database, ctx: Context
) -> None:
    many(database, scans.PAGE + 1, with_jobs=False)
    assert scan(ctx, budget=SPENT) == Again(0)
    assert len(polls(database)) == scans.PAGE
    assert scan(ctx, budget=SPENT) == Done()
    assert len(polls(database)) == scans.PAGE
    assert scan(ctx) == Done()
    assert len(polls(database)) == scans.PAGE + 1


def test_a_cancelled_walk_stops_at_its_page(database: Database, ctx: Context) -> None:
    many(database, scans.PAGE + 1, with_jobs=False)
    assert scan_live_charges(HandRun(database, cancelled=True), ctx) == Again(0)
    assert len(polls(database)) == scans.PAGE


def many(database: Database, number: int, *, with_jobs: bool = True) -> None:
    """Live charges that were all touched in one instant, an hour ago."""
    with database.transaction() as tx:
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(
            "INSERT INTO vpay.charges (id, payment_intent_id, provider_code,"
            " provider_reference_id, state, amount, currency, updated_at)"
            " SELECT 'ch_m' || i, 'pi_m' || i, 'mtn_momo', i, 'unresolved', 1, 'EUR',"
            " now() - interval '1 h' FROM generate_series(1, %s) AS i",
            (number,),
        )
        if with_jobs:
            tx.execute(
                "INSERT INTO vpay.jobs (queue, kind, payload, dedupe_key, run_at)"
                " SELECT 'payments', 'poll_charge', jsonb_build_object('charge_id', id),"
                " 'poll:' || id, now() + interval '1 h' FROM vpay.charges"
            )


def test_what_is_written_meanwhile_is_not_doubled(database: Database, ctx: Context) -> None:
    charge = a_charge(database)
    with database.connection() as connection:
        first = scans.scan_live(connection, scans.START, untouched=600)
        second = scans.scan_live(connection, scans.START, untouched=600)
    assert (first.enqueued, second.enqueued) == ((charge.id,), ())
    assert (first.looked_at, second.looked_at) == (1, 1)
    assert scalar(database, "SELECT count(*) FROM vpay.jobs") == 1
