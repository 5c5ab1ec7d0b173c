"""What is kept for a while, and what for ever."""

from __future__ import annotations

import hashlib

import pytest

from tests.payment_kit import make_attempt, make_charge, scalar
from tests.webhooks.world import HandRun, append_many, context, endpoint, rows, settings
from vpay_tasks.core.charge import AttemptClass, FailureCode, State
from vpay_tasks.core.job import Again, Answer, Done
from vpay_tasks.handlers import sweep_retention
from vpay_tasks.handlers.context import Context
from vpay_tasks.store import inbox, replays
from vpay_tasks.store.db import Database
from vpay_tasks.store.inbox import Keeping
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints


@pytest.fixture
def ctx(database: Database) -> Context:
    return context(database, Endpoints(settings(endpoint())))


def sweep(ctx: Context) -> Answer | None:
    return sweep_retention.sweep_retention(HandRun(ctx.db), ctx)


def fanned_out(ctx: Context, number: int) -> list[str]:
    ids = append_many(ctx.db, number)
    while fanout.drain(ctx.db, ctx.endpoints).again_now:
        pass
    return ids


def age(database: Database, *ids: str, days: int = 91) -> None:
    change = (
        "UPDATE vpay.events SET created_at = now() - make_interval(days => %s) WHERE id = ANY(%s)"
    )
    rows(database, change, days, list(ids))


def delivered(database: Database, *ids: str) -> None:
    rows(
        database,
        "UPDATE vpay.webhook_deliveries SET state = 'delivered', ended_at = now()"
        " WHERE event_id = ANY(%s)",
        list(ids),
    )
    rows(
        database,
        "INSERT INTO vpay.delivery_attempts (begun_at, duration_ms, attempt, counted,"
        " delivery_id, key_ids, excerpt) SELECT now(), 1, 1, true, id, '{}', 'ok'"
        " FROM vpay.webhook_deliveries WHERE event_id = ANY(%s)",
        list(ids),
    )


def kept(database: Database) -> list[str]:
    return [id_ for (id_,) in rows(database, "SELECT id FROM vpay.events ORDER BY seq")]


def test_old_events_go_with_their_deliveries_and_attempts_and_young_ones_stay(
    ctx: Context,
) -> None:
    old, young = fanned_out(ctx, 2)
    delivered(ctx.db, old, young)
    age(ctx.db, old)
    age(ctx.db, young, days=89)
    for _ in range(2):
        assert sweep(ctx) == Done()
        assert kept(ctx.db) == [young]
        assert scalar(ctx.db, "SELECT count(*) FROM vpay.webhook_deliveries") == 1
        assert scalar(ctx.db, "SELECT count(*) FROM vpay.delivery_attempts") == 1


def test_what_a_delivery_still_waits_to_send_stays_and_hides_nothing_behind_it(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_retention, "PAGE", 2)
    ids = fanned_out(ctx, 7)
    age(ctx.db, *ids)
    delivered(ctx.db, *ids[4:])
    assert sweep(ctx) == Done()
    assert kept(ctx.db) == ids[:4]


def test_more_that_stays_than_one_run_deletes_hides_nothing_behind_it(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_retention, "PAGE", 2)
    monkeypatch.setattr(sweep_retention, "PAGES", 1)
    ids = fanned_out(ctx, 9)
    age(ctx.db, *ids)
    delivered(ctx.db, *ids[6:])
    assert sweep(ctx) == Again(0)
    assert sweep(ctx) == Done()
    assert kept(ctx.db) == ids[:6]


def test_a_replay_under_way_keeps_its_event_and_its_delivery(ctx: Context) -> None:
    replayed, other = fanned_out(ctx, 2)
    delivered(ctx.db, replayed, other)
    age(ctx.db, replayed, other)
    rows(ctx.db, "DELETE FROM vpay.jobs")
    ((delivery_id,),) = rows(
        ctx.db, "SELECT id FROM vpay.webhook_deliveries WHERE event_id = %s", replayed
    )
    with ctx.db.transaction() as tx:
        assert replays.replay(tx, [delivery_id]).moved == 1
        assert sweep(ctx) == Done()
    assert sweep(ctx) == Done()
    assert kept(ctx.db) == [replayed]
    pending = "SELECT id FROM vpay.webhook_deliveries WHERE state = 'pending'"
    assert rows(ctx.db, pending) == [(delivery_id,)]


def test_what_receivers_said_goes_also_from_events_that_stay(ctx: Context) -> None:
    old, young = fanned_out(ctx, 2)
    delivered(ctx.db, old, young)
    age(ctx.db, old, young)
    rows(
        ctx.db,
        "UPDATE vpay.webhook_deliveries SET state = 'pending', ended_at = NULL,"
        " replays = replays + 1, last_excerpt = 'ok', attempted_at = now()",
    )
    rows(
        ctx.db,
        "UPDATE vpay.webhook_deliveries SET attempted_at = now() - interval '91 d'"
        " WHERE event_id = %s",
        old,
    )
    rows(
        ctx.db,
        "UPDATE vpay.delivery_attempts SET begun_at = now() - interval '91 d' WHERE delivery_id ="
        " (SELECT id FROM vpay.webhook_deliveries WHERE event_id = %s)",
        old,
    )
    for _ in range(2):
        assert sweep(ctx) == Done()
        said = (
            "SELECT last_excerpt, excerpt FROM vpay.webhook_deliveries AS d"
            " JOIN vpay.delivery_attempts AS a ON a.delivery_id = d.id ORDER BY excerpt"
        )
        assert rows(ctx.db, said) == [(None, ""), ("ok", "ok")]


def test_bodies_of_given_up_events_go_and_come_back_with_a_repeat(ctx: Context) -> None:
    given = Keeping(
        vendor="shop",
        account="",
        event_id="e_1",
        type="t",
        reference=None,
        lane="l",
        verified_by="token",
        digest=hashlib.sha256(b"Ada").digest(),
        body=b"Ada",
    )
    with ctx.db.transaction() as tx:
        row = inbox.keep(tx, given).id
        assert inbox.end(tx, row, "dead", reason="gave up", error="Ada")
    for days, left in ((89, b"Ada"), (91, b"")):
        rows(
            ctx.db,
            "UPDATE vpay.inbox_events SET ended_at = now() - make_interval(days => %s)",
            days,
        )
        for _ in range(2):
            assert sweep(ctx) == Done()
        with ctx.db.transaction() as tx:
            assert inbox.body(tx, row) == left
    assert scalar(ctx.db, "SELECT count(last_error) FROM vpay.inbox_events") == 0
    with ctx.db.transaction() as tx:
        assert inbox.rearm(tx, row, ["dead"]) is None
        inbox.keep(tx, given)
        assert inbox.body(tx, row) == b"Ada"
        assert inbox.rearm(tx, row, ["dead"]) == "l"


def test_an_event_that_was_never_fanned_out_stays(ctx: Context) -> None:
    ids = append_many(ctx.db, 1)
    age(ctx.db, *ids)
    assert sweep(ctx) == Done()
    assert kept(ctx.db) == ids


def test_a_backlog_is_swept_in_runs_that_end(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_retention, "PAGE", 2)
    monkeypatch.setattr(sweep_retention, "PAGES", 2)
    ids = fanned_out(ctx, 6)
    delivered(ctx.db, *ids)
    age(ctx.db, *ids)
    assert [sweep(ctx), sweep(ctx)] == [Again(0), Done()]
    assert kept(ctx.db) == []


def test_rails_words_go_after_a_while_and_what_they_meant_stays(ctx: Context) -> None:
    charge = make_charge(ctx.db, state=State.FAILED, failure_raw="NOT_ENOUGH_FUNDS")
    make_charge(ctx.db, state=State.FAILED, failure_raw="EXPIRED")
    make_attempt(ctx.db, charge, AttemptClass.DECLINED, FailureCode.PAYER_TIMEOUT)
    rows(
        ctx.db,
        "UPDATE vpay.provider_requests SET detail = 'x', answered_at = now() - interval '91 d'",
    )
    with ctx.db.transaction() as tx:
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(
            "UPDATE vpay.charges SET updated_at = now() - interval '91 d' WHERE id = %s",
            (charge.id,),
        )
    for _ in range(2):
        assert sweep(ctx) == Done()
        words = "SELECT failure_raw, failure_code FROM vpay.charges ORDER BY failure_raw"
        assert rows(ctx.db, words) == [("EXPIRED", "payer_timeout"), (None, "payer_timeout")]
        details = "SELECT detail, code FROM vpay.provider_requests"
        assert rows(ctx.db, details) == [(None, "payer_timeout")]


@pytest.mark.parametrize("change", ["failure_raw = 'other'", "failure_code = 'provider_error'"])
def test_words_of_a_charge_that_is_over_go_and_never_change(ctx: Context, change: str) -> None:
    make_charge(ctx.db, state=State.FAILED, failure_raw="EXPIRED")
    with ctx.db.connection() as connection:
        with pytest.raises(Exception, match="terminal"):
            connection.execute(f"UPDATE vpay.charges SET {change}".encode())
        connection.execute("UPDATE vpay.charges SET failure_raw = NULL")
        with pytest.raises(Exception, match="terminal"):
            connection.execute("UPDATE vpay.charges SET failure_raw = 'EXPIRED'")
