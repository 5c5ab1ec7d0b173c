"""The inbox's housekeeping: rows without a job, rows that are long over."""

from __future__ import annotations

from tests.inbox.bench import InboxBench, done, granting
from tests.inbox.signing import by_stripe, stripe_event
from tests.webhooks.world import HandRun
from vpay_tasks.core.job import Again, Done
from vpay_tasks.handlers.scan_inbox import scan_inbox
from vpay_tasks.handlers.sweep_expired import sweep_expired
from vpay_tasks.store import inbox
from vpay_tasks.store.db import Database


def test_rows_without_a_job_are_found_by_the_scan(box: InboxBench, database: Database) -> None:
    with granting(done):
        for number in range(4):
            box.deliver(by_stripe(stripe_event(f"evt_{number}", about=f"pi_{number}")))
        while box.run():
            pass
        box.ask("UPDATE vpay.inbox_events SET state = 'accepted', verdict = NULL, ended_at = NULL")
        box.deliver(by_stripe(stripe_event("evt_0", about="pi_0")))
        box.ask(
            "UPDATE vpay.inbox_events SET state = 'dead', reason = 'x', ended_at = now()"
            " WHERE event_id = 'evt_3'"
        )
        with database.connection() as connection:
            assert len(inbox.scan(connection)) == 2
            assert inbox.scan(connection) == []
        assert sorted(box.jobs()) == ["inbox:1", "inbox:2", "inbox:3"]
        while box.run():
            pass
    assert box.rows() == ["done", "done", "done", "dead"]


def test_only_what_is_long_over_is_thrown_away(box: InboxBench, database: Database) -> None:
    for number in range(5):
        box.deliver(by_stripe(stripe_event(f"evt_{number}")))
    old = "now() - interval '31 days'"
    for number, change in enumerate(
        (
            f"state = 'done', verdict = 'DONE', ended_at = {old}",
            f"state = 'ignored', ended_at = {old}",
            f"state = 'dead', reason = 'x', ended_at = {old}",
            "state = 'done', verdict = 'DONE', ended_at = now() - interval '29 days'",
            f"received_at = {old}",
        )
    ):
        box.ask(f"UPDATE vpay.inbox_events SET {change} WHERE event_id = 'evt_{number}'")
    for _ in range(2):
        assert sweep_expired(HandRun(database), box.worker.runner.context) == Done()
    assert box.rows("event_id") == ["evt_2", "evt_3", "evt_4"]


def test_it_runs_twice_and_at_once_only_behind_a_full_page(box: InboxBench) -> None:
    ctx = box.worker.runner.context
    box.deliver(by_stripe(stripe_event()))
    box.ask(
        "INSERT INTO vpay.inbox_events (vendor, event_id, type, lane, verified_by, digest, body)"
        " SELECT 'v', 'e' || n, 't', 'l' || n, 'by', sha256('x'), 'x'"
        " FROM generate_series(1, 500) AS n"
    )
    assert scan_inbox(HandRun(box.database), ctx) == Again(0)
    assert scan_inbox(HandRun(box.database), ctx) == Done()
    assert len(set(box.jobs())) == 501
