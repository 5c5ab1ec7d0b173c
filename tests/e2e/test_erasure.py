"""A worker dies in the middle of an erasure; the next sweep goes on where it stood."""

from __future__ import annotations

import signal

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from vpay_tasks.payments import create_customer, update_customer


def test_an_erasure_of_2000_events_whose_worker_is_killed_half_way_is_finished_by_the_next(
    fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    db = board.database
    with db.transaction() as tx:
        ada = create_customer(tx, "shop", name="Ada 0", email="ada@example.com")
        for number in range(1, 2_000):
            update_customer(tx, "shop", ada.id, name=f"Ada {number}")
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute("UPDATE vpay.customers SET last_used_at = now() - interval '366 d'")
        tx.execute("UPDATE vpay.events SET fanout_state = 'done', list_seq = seq")
    redacted = "SELECT count(*) FROM vpay.events WHERE redacted"
    with db.transaction() as tx:
        # Of the third page: there the erasure has to wait, and dies waiting.
        tx.execute(
            "SELECT FROM vpay.events WHERE seq = (SELECT min(seq) + 1200 FROM vpay.events)"
            " FOR UPDATE"
        )
        fleet.dispatcher()
        first = fleet.workers(threads=2, queues=["housekeeping"])
        eventually(lambda: board.ask(redacted) == [(1_000,)])
        eventually(
            lambda: board.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        )
        first.signal_group(signal.SIGKILL)
    assert board.ask("SELECT name, redaction_done_at FROM vpay.customers") == [(None, None)]
    fleet.workers(threads=2, queues=["housekeeping"])
    eventually(lambda: board.ask("SELECT FROM vpay.customers") == [])
    left = (
        "SELECT count(*) FROM vpay.events WHERE NOT redacted OR convert_from(body, 'UTF8') ~ 'Ada'"
    )
    assert board.ask(left) == [(0,)]
    deleted = "SELECT count(*) FROM vpay.events WHERE type = 'customer.deleted'"
    assert board.ask(deleted) == [(1,)]
