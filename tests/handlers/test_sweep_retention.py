"""What is kept for a while, and what for ever."""

from __future__ import annotations

import pytest

from tests.payment_kit import make_attempt, make_charge, scalar
from tests.webhooks.world import HandRun, append_many, context, endpoint, rows, settings
from vpay_tasks.core.charge import AttemptClass, FailureCode, State
from vpay_tasks.core.job import Again, Answer, Done
from vpay_tasks.handlers import sweep_retention
from vpay_tasks.handlers.context import Context
from vpay_tasks.store.db import Database
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
