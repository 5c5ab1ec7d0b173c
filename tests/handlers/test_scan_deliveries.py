"""The backstop: a pending delivery without a job gets one, and nothing else does."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.handlers.by_hand import alerts, run
from tests.webhooks.receivers import Receiver
from tests.webhooks.world import HandRun, append_many, one_delivery, rows
from vpay_tasks.core.job import Done
from vpay_tasks.errors import Storage
from vpay_tasks.handlers.context import Context
from vpay_tasks.handlers.scan_deliveries import scan_deliveries
from vpay_tasks.store import strays
from vpay_tasks.webhooks import fanout


def scan(ctx: Context, **job: Any) -> None:
    assert scan_deliveries(HandRun(ctx.db, **job), ctx) == Done()


def age(ctx: Context) -> None:
    query = "UPDATE vpay.webhook_deliveries SET created_at = created_at - interval '10 min'"
    rows(ctx.db, query)


def lose_jobs(ctx: Context) -> None:
    rows(ctx.db, "DELETE FROM vpay.jobs")


def job_rows(ctx: Context) -> list[tuple[Any, ...]]:
    return rows(ctx.db, "SELECT dedupe_key, lane, due, payload FROM vpay.jobs ORDER BY id")


def test_a_pending_delivery_that_lost_its_job_gets_it_back_and_is_delivered(
    ctx: Context, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = one_delivery(ctx)
    before = job_rows(ctx)
    lose_jobs(ctx)
    age(ctx)
    scan(ctx)
    scan(ctx)
    assert job_rows(ctx) == before
    assert alerts(caplog) == ["deliveries_requeued"]
    assert run(ctx, id_) == Done()
    assert len(receiver.seen) == 1


def test_what_has_a_job_or_waits_or_has_ended_or_is_young_is_left_alone(
    ctx: Context, caplog: pytest.LogCaptureFixture
) -> None:
    with_job, waiting, *ended, young = [one_delivery(ctx) for _ in range(7)]
    rows(ctx.db, "DELETE FROM vpay.jobs WHERE payload->>'delivery_id' <> %s", with_job)
    age(ctx)
    query = "UPDATE vpay.webhook_deliveries SET {} WHERE id = %s"
    rows(ctx.db, query.format("created_at = now()"), young)
    later = query.format("attempts = 1, next_attempt_at = now() + interval '1 min'")
    rows(ctx.db, later, waiting)
    for id_, state in zip(ended, ("delivered", "exhausted", "gone", "poisoned"), strict=True):
        rows(ctx.db, query.format(f"state = '{state}', ended_at = now()"), id_)
    before = job_rows(ctx)
    scan(ctx)
    assert job_rows(ctx) == before
    assert alerts(caplog) == []


def test_one_whose_time_has_come_is_a_stray_however_young(ctx: Context) -> None:
    one_delivery(ctx)
    lose_jobs(ctx)
    rows(ctx.db, "UPDATE vpay.webhook_deliveries SET attempts = 1, next_attempt_at = now()")
    scan(ctx)
    assert len(job_rows(ctx)) == 1


def fan_out(ctx: Context, count: int) -> None:
    """So many deliveries, with their jobs."""
    append_many(ctx.db, count)
    while fanout.drain(ctx.db, ctx.endpoints).again_now:
        pass
    age(ctx)


def test_a_stray_behind_pages_of_healthy_ones_is_found(ctx: Context) -> None:
    fan_out(ctx, 2 * strays.PAGE + 10)
    order = "ORDER BY created_at DESC, id DESC LIMIT 1"
    ((last,),) = rows(ctx.db, f"SELECT id FROM vpay.webhook_deliveries {order}")
    rows(ctx.db, "DELETE FROM vpay.jobs WHERE dedupe_key = %s", f"webhook:{last}")
    assert len(job_rows(ctx)) == 2 * strays.PAGE + 9
    scan(ctx)
    found = [key for key, *_ in job_rows(ctx)]
    assert (len(found), found[-1]) == (2 * strays.PAGE + 10, f"webhook:{last}")


def test_many_strays_are_queued_in_one_run(ctx: Context) -> None:
    fan_out(ctx, strays.PAGE + 1)
    lose_jobs(ctx)
    scan(ctx)
    assert len(job_rows(ctx)) == strays.PAGE + 1


@pytest.mark.parametrize(("count", "named"), [(1, 1), (20, 20), (23, 20)])
def test_parked_ones_are_named_in_one_line_with_their_exact_number(
    ctx: Context, caplog: pytest.LogCaptureFixture, count: int, named: int
) -> None:
    fan_out(ctx, count)
    rows(ctx.db, "UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'by_operator'")
    scan(ctx)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    fields = record.__dict__["fields"]
    assert (fields["action"], fields["deliveries"]) == ("deliveries_parked", count)
    assert len(set(fields["named"])) == named
    assert len(job_rows(ctx)) == count


def test_a_pass_that_is_stopped_before_its_end_says_so(
    ctx: Context, caplog: pytest.LogCaptureFixture
) -> None:
    scan(ctx, cancelled=True)
    assert alerts(caplog) == ["scan_deliveries_cut_off"]


def test_a_pass_that_fails_is_an_error_that_alerts(ctx: Context) -> None:
    rows(ctx.db, "ALTER TABLE vpay.webhook_deliveries RENAME TO elsewhere")
    with pytest.raises(Exception, match="scan_pending") as caught:
        scan(ctx)
    severity = getattr(caught.value, "severity", Storage.severity)
    assert severity.alerts
