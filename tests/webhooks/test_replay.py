"""Deliveries sent again: the same bytes, a fresh time, never beside an attempt in flight."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.handlers.by_hand import alerts, run
from tests.webhooks.receivers import Receiver, answer, receiving
from tests.webhooks.world import append_many, context, endpoint, one_delivery, rows, settings
from vpay_tasks.core.job import Again, Done, Park
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import deliveries
from vpay_tasks.store.db import Database
from vpay_tasks.store.deliveries import Attempt
from vpay_tasks.store.replays import Filter, Replayed
from vpay_tasks.webhooks import fanout, replay
from vpay_tasks.webhooks.endpoints import Endpoint, Endpoints

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def ctx(database: Database, receiver: Receiver) -> Context:
    return context(database, Endpoints(settings(endpoint(receiver.url))))


def main(ctx: Context) -> Endpoint:
    found = ctx.endpoints.get("acme", "main")
    assert found is not None
    return found


def end_job(ctx: Context) -> None:
    """As the settle of a run that is done."""
    rows(ctx.db, "DELETE FROM vpay.jobs")


def ended(ctx: Context, state: str) -> str:
    """A delivery that ended so, after eight attempts, without a job."""
    id_ = one_delivery(ctx)
    rows(
        ctx.db,
        "UPDATE vpay.webhook_deliveries SET state = %s, attempts = 8, ended_at = now()"
        " WHERE id = %s",
        state,
        id_,
    )
    end_job(ctx)
    return id_


def of(ctx: Context, id_: str) -> tuple[Any, ...]:
    query = (
        "SELECT state, attempts, ladder_from, replays, next_attempt_at IS NULL, ended_at IS NULL"
        " FROM vpay.webhook_deliveries WHERE id = %s"
    )
    (found,) = rows(ctx.db, query, id_)
    return found


def due_jobs(ctx: Context) -> list[tuple[Any, ...]]:
    return rows(
        ctx.db,
        "SELECT dedupe_key, lane FROM vpay.jobs WHERE due AND run_at <= now() AND lease IS NULL"
        " AND parked_at IS NULL ORDER BY dedupe_key",
    )


@pytest.mark.parametrize("state", ["delivered", "exhausted", "gone"])
def test_a_delivery_that_ended_is_sent_again_with_the_same_id_and_bytes(
    ctx: Context, receiver: Receiver, state: str
) -> None:
    first = one_delivery(ctx)
    assert run(ctx, first) == Done()
    rows(ctx.db, "ALTER TABLE vpay.webhook_deliveries DISABLE TRIGGER terminal_states_stay")
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET state = %s", state)
    rows(ctx.db, "ALTER TABLE vpay.webhook_deliveries ENABLE TRIGGER terminal_states_stay")
    end_job(ctx)
    assert replay.again(ctx.db, [first]) == Replayed(1, 0)
    assert of(ctx, first) == ("pending", 1, 1, 1, True, True)
    assert due_jobs(ctx) == [(f"webhook:{first}", "acme/main")]
    assert run(ctx, first) == Done()
    before, after = receiver.seen
    assert (before.body, before.headers["webhook-id"]) == (after.body, after.headers["webhook-id"])
    assert after.headers["Vpay-Attempt"] == "2"
    logged = "SELECT attempt, status, digest FROM vpay.delivery_attempts ORDER BY id"
    (one, two) = rows(ctx.db, logged)
    assert (one[0], two[0], one[1:]) == (1, 2, two[1:])


def test_the_ladder_begins_anew_and_ends_after_as_many_posts(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(500)]
    id_ = ended(ctx, "exhausted")
    replay.again(ctx.db, [id_])
    for rung in (10, 30, 120, 600, 3_600, 21_600, 86_400):
        found = run(ctx, id_)
        assert isinstance(found, Again)
        assert rung <= found.after <= rung * 1.1
        rows(ctx.db, "UPDATE vpay.webhook_deliveries SET next_attempt_at = now()")
    assert run(ctx, id_) == Done()
    assert of(ctx, id_)[:4] == ("exhausted", 16, 8, 1)
    assert [seen.headers["Vpay-Attempt"] for seen in receiver.seen] == [
        str(9 + n) for n in range(8)
    ]
    assert alerts(caplog) == ["delivery_exhausted"]


def test_one_that_waits_on_its_ladder_is_tried_now(ctx: Context, receiver: Receiver) -> None:
    receiver.answers = [answer(500), answer(200)]
    id_ = one_delivery(ctx)
    run(ctx, id_)
    rows(ctx.db, "UPDATE vpay.jobs SET run_at = now() + interval '1 h', due = false")
    assert replay.again(ctx.db, [id_]) == Replayed(1, 0)
    assert len(due_jobs(ctx)) == 1
    assert run(ctx, id_) == Done()
    assert len(receiver.seen) == 2


@pytest.mark.parametrize("started", ["now()", "NULL"])
@pytest.mark.parametrize("state", ["pending", "delivered"])
def test_never_beside_an_attempt_that_may_be_in_flight(
    ctx: Context, started: str, state: str
) -> None:
    id_ = one_delivery(ctx)
    if state != "pending":  # recorded, and not settled yet
        rows(ctx.db, "UPDATE vpay.webhook_deliveries SET state = 'delivered', ended_at = now()")
    rows(
        ctx.db,
        "UPDATE vpay.jobs SET lease = gen_random_uuid(), locked_by = 'w', locked_at = now(),"
        f" lease_until = now() + interval '30 s', started_at = {started}",
    )
    before = of(ctx, id_)
    assert replay.again(ctx.db, [id_]) == Replayed(0, 1)
    assert of(ctx, id_) == before


def in_background(ctx: Context, id_: str, found: list[Replayed]) -> threading.Thread:
    thread = threading.Thread(target=lambda: found.append(replay.again(ctx.db, [id_])))
    thread.start()
    return thread


def waits(ctx: Context) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return bool(rows(ctx.db, query))


def test_a_job_that_is_claimed_while_the_replay_looks_leaves_it_alone(
    ctx: Context, eventually: Eventually
) -> None:
    id_ = one_delivery(ctx)
    found: list[Replayed] = []
    with ctx.db.transaction() as tx:
        tx.execute(
            b"UPDATE vpay.jobs SET lease = gen_random_uuid(), locked_by = 'w', locked_at = now(),"
            b" lease_until = now() + interval '30 s'"
        )
        thread = in_background(ctx, id_, found)
        eventually(lambda: waits(ctx))
    thread.join()
    assert found == [Replayed(0, 1)]


def test_a_job_that_ends_while_the_replay_waits_for_it_gets_a_successor(
    ctx: Context, eventually: Eventually
) -> None:
    id_ = one_delivery(ctx)
    found: list[Replayed] = []
    with ctx.db.transaction() as tx:
        tx.execute(b"UPDATE vpay.webhook_deliveries SET state = 'delivered', ended_at = now()")
        tx.execute(b"DELETE FROM vpay.jobs")
        thread = in_background(ctx, id_, found)
        eventually(lambda: waits(ctx))
    thread.join()
    assert found == [Replayed(1, 0)]
    assert of(ctx, id_)[:4] == ("pending", 0, 0, 1)
    assert due_jobs(ctx) == [(f"webhook:{id_}", "acme/main")]


def test_two_replays_at_once_leave_one_job(ctx: Context) -> None:
    id_ = ended(ctx, "exhausted")
    found: list[Replayed] = []
    threads = [in_background(ctx, id_, found) for _ in range(4)]
    for thread in threads:
        thread.join()
    assert sum(one.moved for one in found) >= 1
    assert len(due_jobs(ctx)) == 1
    assert of(ctx, id_)[0] == "pending"


def test_a_run_that_slept_through_the_replay_takes_no_rung_of_the_new_ladder(
    ctx: Context,
) -> None:
    id_ = ended(ctx, "exhausted")
    replay.again(ctx.db, [id_])
    late = Attempt(number=8, begun=1_764_000_000.0, seconds=1, status=500, excerpt="late")
    with ctx.db.connection() as connection:
        recorded = deliveries.record(connection, id_, late, state="exhausted", delay=None)
    assert not recorded.counted
    assert of(ctx, id_)[:2] == ("pending", 8)


@pytest.mark.parametrize("state", ["pending", "exhausted", "gone"])
def test_a_run_that_slept_through_the_replay_of_a_pending_one_does_not_end_it(
    ctx: Context, state: deliveries.State
) -> None:
    id_ = one_delivery(ctx)
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET attempts = 7")
    with ctx.db.connection() as connection:
        found = deliveries.read(connection, id_)
    assert found is not None
    assert replay.again(ctx.db, [id_]) == Replayed(1, 0)  # its lease had been reaped
    late = Attempt(number=8, begun=found.now, seconds=1, status=500, excerpt="late")
    delay = 86_400.0 if state == "pending" else None
    with ctx.db.connection() as connection:
        recorded = deliveries.record(connection, id_, late, state=state, delay=delay)
    assert not recorded.counted
    assert of(ctx, id_) == ("pending", 7, 7, 1, True, True)


def test_a_parked_jobs_delivery_is_tried_again_and_poisoned_bytes_are_refused_again(
    ctx: Context, receiver: Receiver
) -> None:
    receiver.answers = [answer(500), answer(200)]
    id_ = one_delivery(ctx)
    run(ctx, id_)
    ((body,),) = rows(ctx.db, "SELECT body FROM vpay.events")
    rows(ctx.db, 'UPDATE vpay.events SET body = \'{"id":"other"}\'')
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET next_attempt_at = now()")
    assert isinstance(run(ctx, id_), Park)
    rows(ctx.db, "UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'poisoned'")
    assert replay.again(ctx.db, [id_]) == Replayed(1, 0)
    assert len(due_jobs(ctx)) == 1
    assert isinstance(run(ctx, id_), Park)
    rows(ctx.db, "UPDATE vpay.events SET body = %s", body)  # a person mended it
    replay.again(ctx.db, [id_])
    assert run(ctx, id_) == Done()
    assert set(receiver.bodies()) == {body}


def test_an_unknown_id_moves_nothing(ctx: Context) -> None:
    assert replay.again(ctx.db, ["del_none"]) == Replayed(0, 0)


def found_by(ctx: Context, wanted: Filter, *, page: int = 100) -> list[str]:
    return [id_ for ids in replay.matching(ctx.db, wanted, page=page) for id_ in ids]


def test_a_filter_finds_what_it_names_however_it_is_paged(
    ctx: Context, database: Database, receiver: Receiver
) -> None:
    ids = [ended(ctx, state) for state in ("exhausted", "gone", "delivered", "poisoned")]
    pending = one_delivery(ctx)
    rows(database, "UPDATE vpay.events SET type = 'payment_intent.canceled' WHERE seq = 1")
    ((event_id,),) = rows(
        database, "SELECT event_id FROM vpay.webhook_deliveries WHERE id = %s", ids[1]
    )
    rows(
        database,
        "UPDATE vpay.webhook_deliveries SET created_at = now() - interval '2 days'"
        " WHERE id = ANY(%s)",
        ids[:2],
    )
    day_ago = datetime.now(UTC) - timedelta(days=1)
    for page in (1, 2, 100):
        assert set(found_by(ctx, Filter(), page=page)) == {*ids, pending}
        assert found_by(ctx, Filter(states=("poisoned",)), page=page) == [ids[3]]
        assert set(found_by(ctx, Filter(states=replay.MISSED), page=page)) == set(ids[:2])
        assert found_by(ctx, Filter(types=("payment_intent.canceled",)), page=page) == [ids[0]]
        assert found_by(ctx, Filter(event_id=event_id), page=page) == [ids[1]]
        assert set(found_by(ctx, Filter(since=day_ago), page=page)) == {ids[2], ids[3], pending}
        assert found_by(ctx, Filter("other"), page=page) == []
        assert found_by(ctx, Filter("acme", "second"), page=page) == []
        assert len(found_by(ctx, Filter("acme", "main"), page=page)) == 5


def test_what_is_made_while_a_replay_runs_is_not_part_of_it(ctx: Context) -> None:
    first = one_delivery(ctx)
    pages = replay.matching(ctx.db, Filter("acme", "main"), page=1)
    found = list(next(pages))
    one_delivery(ctx)
    found += [id_ for ids in pages for id_ in ids]
    assert found == [first]


def missed(ctx: Context, since: datetime = LONG_AGO, *, page: int = 100) -> list[str]:
    pages = replay.never_made(ctx.db, main(ctx), since=since, page=page)
    return [id_ for ids in pages for id_ in ids]


@pytest.mark.parametrize("page", [1, 2, 100])
def test_an_endpoint_gets_what_was_fanned_out_before_it_was_there_once(
    ctx: Context, receiver: Receiver, page: int
) -> None:
    early = append_many(ctx.db, 3)
    assert fanout.drain(ctx.db, Endpoints(settings())).deliveries == 0
    one_delivery(ctx)
    pending = append_many(ctx.db, 1)  # its fan-out is still to come
    assert missed(ctx, page=page) == early
    assert replay.make(ctx.db, main(ctx), early) == 3
    assert replay.make(ctx.db, main(ctx), early) == 0
    assert missed(ctx, page=page) == []
    assert len(due_jobs(ctx)) == 4
    for (id_,) in rows(ctx.db, "SELECT id FROM vpay.webhook_deliveries"):
        assert run(ctx, id_) == Done()
    assert {seen.headers["Vpay-Event-Id"] for seen in receiver.seen} >= set(early)
    assert {seen.headers["Vpay-Event-Id"] for seen in receiver.seen}.isdisjoint(pending)


def test_what_an_endpoint_missed_is_its_own_merchants_its_types_and_since_then(
    ctx: Context, database: Database
) -> None:
    ours, theirs, other, failed, old = append_many(database, 5)
    fanout.drain(database, Endpoints(settings()))
    rows(database, "UPDATE vpay.events SET merchant_id = 'other' WHERE id = %s", theirs)
    rows(database, "UPDATE vpay.events SET type = 'payment_intent.canceled' WHERE id = %s", other)
    rows(database, "UPDATE vpay.events SET fanout_state = 'failed' WHERE id = %s", failed)
    rows(database, "UPDATE vpay.events SET created_at = '2021-01-01Z' WHERE id = %s", old)
    narrow = context(database, Endpoints(settings(endpoint(types=["payment_intent.succeeded"]))))
    assert missed(narrow, datetime(2022, 1, 1, tzinfo=UTC)) == [ours]
    assert missed(narrow) == [old, ours]
    assert replay.make(database, main(narrow), [theirs]) == 0
