"""What could not be kept is never answered with a 2xx."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import Eventually
from tests.e2e import proxy
from tests.inbox.bench import InboxBench
from tests.inbox.signing import by_stripe, stripe_event
from tests.inbox.test_receive import alerts
from vpay_tasks.config import WindowsTable
from vpay_tasks.errors import Storage
from vpay_tasks.inbox import Answer
from vpay_tasks.store.db import Database


def test_a_database_that_only_reads_is_no_reason_to_say_accepted(box: InboxBench) -> None:
    given = by_stripe(stripe_event())
    ((name,),) = box.ask("SELECT current_database()")
    box.ask(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with box.another() as stuck:
        answer = stuck.receive(given.body, given.headers, "stripe")
        assert answer == Answer(503, {"error": "storage"})
    box.ask("SET default_transaction_read_only = off")
    box.ask(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert box.deliver(given).status == 200


def test_a_database_that_takes_no_job_keeps_no_event(box: InboxBench) -> None:
    box.ask(
        "CREATE FUNCTION vpay.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'insufficient_privilege'; END $$"
    )
    box.ask(
        "CREATE TRIGGER refuse BEFORE INSERT ON vpay.jobs FOR EACH ROW"
        " EXECUTE FUNCTION vpay.refuse()"
    )
    assert box.deliver(by_stripe(stripe_event())).status == 500
    assert box.rows() == []


def test_a_commit_that_nobody_heard_of_is_a_5xx(box: InboxBench, eventually: Eventually) -> None:
    given = by_stripe(stripe_event())
    with proxy.before(box.database.url) as (line, through), box.another(through, size=1) as far:

        def status() -> int:
            try:
                far.take_in(given.body, given.headers, "stripe")
            except Storage as error:
                return error.http
            return 200

        line.swallow_commit()
        assert status() == 503
        assert box.rows() == []
        with far.db.connection():
            pass  # the only one stands again: its beginning has no answers below
        # BEGIN, the patience, the row, its job: then the commit is done, and nobody hears of it.
        line.cut_on_answer(skip=4)
        assert status() == 503
        assert box.rows("deliveries") == [1]
        line.accept_again()
        eventually(lambda: status() == 200)
        assert len(box.jobs()) == 1


def test_a_postgres_that_is_down_is_a_5xx(box: InboxBench, eventually: Eventually) -> None:
    given = by_stripe(stripe_event())
    windows = WindowsTable(inbox_answer=0.5)
    with (
        proxy.before(box.database.url) as (line, through),
        box.another(through, windows) as far,
    ):
        line.refuse()
        assert far.receive(given.body, given.headers, "stripe").status == 503
        line.accept_again()
        eventually(lambda: far.receive(given.body, given.headers, "stripe").status == 200)


def test_a_locked_row_costs_no_more_than_the_time_to_answer(
    box: InboxBench, database: Database, eventually: Eventually
) -> None:
    given = by_stripe(stripe_event())
    box.deliver(given)
    windows = WindowsTable(inbox_answer=0.3)
    with box.another(windows=windows) as inbox, ThreadPoolExecutor(1) as pool:
        with database.transaction() as tx:
            tx.execute("SELECT FROM vpay.inbox_events FOR UPDATE")
            told = pool.submit(inbox.receive, given.body, given.headers, "stripe")
            # The session's own limit for a lock is 15 s.
            eventually(told.done, within=10)
        assert told.result().status == 503


def test_an_outage_is_one_alert_and_not_one_for_each_delivery(
    box: InboxBench, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    given = by_stripe(stripe_event())
    windows = WindowsTable(inbox_answer=0.3)
    with (
        proxy.before(box.database.url) as (line, through),
        box.another(through, windows) as far,
    ):
        for number in (1, 2):
            line.refuse()
            for _ in range(3):
                assert far.receive(given.body, given.headers, "stripe").status == 503
            assert alerts(caplog) == ["inbox_not_kept"] * number
            line.accept_again()
            eventually(lambda: far.receive(given.body, given.headers, "stripe").status == 200)
