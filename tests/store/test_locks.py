"""What a statement does about rows that another transaction holds: it waits and judges them
anew, in an order that can't deadlock, or passes over them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.factories import change, row
from tests.store.job_rows import CLAIMED, RUN_OVER, RUNNING, TOKEN, a_row, everything
from tests.store.tables import changes, without_indexes
from tests.store.test_bystanders_of_money import attempt, two_deliveries
from tests.webhooks.world import append
from vpay_tasks.core.settling import Ending, Verb
from vpay_tasks.store import deliveries, events, jobs, lanes, leases, settles, workers
from vpay_tasks.store.db import Connection, Database, connect
from vpay_tasks.store.settles import Settle

Call = Callable[[Connection], Any]
Behind = Callable[..., Any]


@pytest.fixture
def behind(database: Database, dsn: str, eventually: Eventually) -> Behind:
    """What the second call says that has to wait for the first one's commit; once it waits,
    the first one's transaction goes on with `meanwhile`."""

    def behind(first: Call, then: Call, meanwhile: Call = lambda tx: None) -> Any:
        with connect(dsn, application="behind") as own, ThreadPoolExecutor(1) as pool:
            with database.transaction() as tx:
                first(tx)
                waiting = pool.submit(then, own)
                eventually(lambda: waits(database, own.info.backend_pid))
                meanwhile(tx)
            return waiting.result(20)

    return behind


def waits(database: Database, pid: int) -> bool:
    with database.connection() as connection:
        ((blocked,),) = connection.execute(
            "SELECT cardinality(pg_blocking_pids(%s)) > 0", (pid,)
        ).fetchall()
    return bool(blocked)


def freed(id_: int) -> Call:
    return lambda tx: jobs.release(tx, {id_: TOKEN})


def test_a_settle_behind_whoever_frees_its_row_settles_nothing(
    database: Database, behind: Behind
) -> None:
    id_ = a_row(database, RUNNING)
    ending = Settle(id_, TOKEN, Ending(Verb.FINISH))
    assert behind(freed(id_), lambda own: settles.settle(own, [ending])) == [False]
    found = row(database, id_)
    assert found is not None
    assert found["settled_by"] is None


def test_what_is_given_back_behind_its_start_stays_with_the_run(
    database: Database, behind: Behind
) -> None:
    id_, run = a_row(database, CLAIMED), uuid.uuid4()

    def start(tx: Connection) -> None:
        jobs.start(tx, [(id_, TOKEN)], run=run, worker="w", run_lease=30, known=[])

    assert behind(start, lambda own: jobs.release(own, {id_: TOKEN})) == []
    found = row(database, id_)
    assert found is not None
    assert found["lease"] == run


def test_whoever_looks_again_waits_for_the_settle_that_is_committing(
    database: Database, behind: Behind
) -> None:
    id_ = a_row(database, RUNNING)
    ending = Settle(id_, TOKEN, Ending(Verb.AGAIN, 60.0))
    seen = behind(lambda tx: settles.settle(tx, [ending]), lambda own: settles.look_again(own, id_))
    assert seen == settles.Seen(lease=None, settled_by=TOKEN)


RUN: dict[str, Any] = {"run": uuid.uuid4(), "worker": "w", "run_lease": 30, "known": []}
HOLD = b"SELECT FROM vpay.jobs WHERE id = %s FOR UPDATE"
LOCKS: dict[str, Callable[[Connection, list[int]], Any]] = {
    "start": lambda own, ids: jobs.start(own, [(id_, TOKEN) for id_ in ids], **RUN),
    "settle": lambda own, ids: settles.settle(
        own, [Settle(id_, TOKEN, Ending(Verb.AGAIN)) for id_ in ids]
    ),
    "release": lambda own, ids: jobs.release(own, dict.fromkeys(ids, TOKEN)),
}


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_the_rows_of_a_message_are_locked_in_the_order_of_their_ids(
    database: Database, behind: Behind, lock: Callable[[Connection, list[int]], Any]
) -> None:
    first, second = a_row(database, RUNNING), a_row(database, RUNNING)
    change(database, "claims = 4", first)  # in the table, too, it now stands behind the other
    behind(
        lambda tx: tx.execute(HOLD, (first,)),
        lambda own: lock(own, [second, first]),
        lambda tx: tx.execute(HOLD + b" NOWAIT", (second,)),
    )


def test_caps_are_dropped_in_the_order_of_their_lanes(database: Database, behind: Behind) -> None:
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.lanes (queue, lane, cap)"
            " VALUES ('webhooks', 'b', 2), ('webhooks', 'a', 2)"
        )
    hold = b"SELECT FROM vpay.lanes WHERE lane = %s FOR UPDATE"
    behind(
        lambda tx: tx.execute(hold, ("a",)),
        lambda own: lanes.set_caps(own, {}),
        lambda tx: tx.execute(hold + b" NOWAIT", ("b",)),
    )


def a_dead_worker(database: Database) -> None:
    with database.connection() as connection:
        workers.pulse(
            connection,
            workers.Worker("w_gone", "host", 1, ["default"], 8),
            draining=False,
            holds_lock=True,
            slowest=0.01,
            stats={},
        )


PARKED = "parked_at = now(), dead_reason = 'unknown_kind'"
GONE: dict[str, Any] = {"protected": [], "silence": -1.0, "settling": -1.0}
SWEEPS: dict[str, tuple[str, Callable[[Connection], Any]]] = {
    "reap_expired": (RUN_OVER, lambda own: leases.reap_expired(own, protected=[])),
    "reap_gone": (RUNNING, lambda own: leases.reap_gone(own, **GONE)),
    "adopt_unknown": (PARKED, lambda own: jobs.adopt_unknown(own, ["a_kind"])),
}


@pytest.mark.parametrize(("state", "sweep"), SWEEPS.values(), ids=SWEEPS)
def test_a_sweep_passes_over_what_somebody_holds_and_takes_the_rest(
    database: Database, dsn: str, state: str, sweep: Callable[[Connection], Any]
) -> None:
    a_dead_worker(database)
    held, free = a_row(database, state), a_row(database, state)
    before = everything(database)
    with database.transaction() as tx, connect(dsn, application="sweeper") as own:
        tx.execute(HOLD, (held,))
        own.execute("SET lock_timeout = '2 s'")  # or it would wait for ever
        own.execute("UPDATE vpay.workers SET slowest_pulse = '-1 h'")
        sweep(own)
    assert set(changes(before, everything(database))) == {free}


def events_in_reverse(database: Database) -> tuple[str, str]:
    """The ids of two: the one that was written first is the last by its id, and by its place."""
    with database.transaction() as tx:
        ids = [append(tx, event_id=id_, customer_id="cus_1") for id_ in ("evt_b", "evt_a")]
        tx.execute("UPDATE vpay.events SET fanout_attempts = 1 WHERE id = 'evt_b'")
    return ids[0], ids[1]


def test_events_are_listed_in_the_order_in_which_they_were_written(database: Database) -> None:
    first, second = events_in_reverse(database)
    with database.connection() as connection:
        without_indexes(connection)
        assert [event.id for event in events.page(connection)] == [first, second]
        assert events.flip(connection, [second, first], []).events == 2
        listed = connection.execute("SELECT id FROM vpay.events ORDER BY list_seq").fetchall()
    assert listed == [(first,), (second,)]


def test_an_event_that_somebody_holds_is_fanned_out_another_time(
    database: Database, dsn: str
) -> None:
    held, free = events_in_reverse(database)
    with database.transaction() as tx, connect(dsn, application="drain") as own:
        tx.execute("SELECT FROM vpay.events WHERE id = %s FOR UPDATE", (held,))
        own.execute("SET lock_timeout = '2 s'")  # or it would wait for ever
        assert [event.id for event in events.page(own)] == [free]
        assert not events.count_failure(own, held)
        assert events.flip(own, [held, free], []).events == 1


def test_an_erasure_locks_a_customers_events_in_the_order_of_the_drain(
    database: Database, behind: Behind
) -> None:
    first, second = events_in_reverse(database)
    hold = b"SELECT FROM vpay.events WHERE id = %s FOR UPDATE"

    def erase(own: Connection) -> dict[int, bytes]:
        without_indexes(own)
        return events.page_of_customer(own, "cus_1", page=500)

    found = behind(
        lambda tx: tx.execute(hold, (first,)),
        erase,
        lambda tx: tx.execute(hold + b" NOWAIT", (second,)),
    )
    assert len(found) == 2


def test_an_old_event_that_somebody_holds_is_swept_another_time(
    database: Database, dsn: str
) -> None:
    held, free = events_in_reverse(database)
    with database.connection() as connection:
        assert events.flip(connection, [held, free], []).events == 2
        seqs = [seq for (seq,) in connection.execute("SELECT seq FROM vpay.events").fetchall()]
    with database.transaction() as tx, connect(dsn, application="sweeper") as own:
        tx.execute("SELECT FROM vpay.events WHERE id = %s FOR UPDATE", (held,))
        own.execute("SET lock_timeout = '2 s'")  # or it would wait for ever
        assert events.sweep_old(own, seqs) == 1
        assert own.execute("SELECT id FROM vpay.events").fetchall() == [(held,)]


def test_an_answer_locks_its_endpoints_lane_before_its_delivery(
    database: Database, behind: Behind
) -> None:
    two_deliveries(database)
    recorded = behind(
        lambda tx: tx.execute("SELECT FROM vpay.lanes WHERE lane = 'acme/main' FOR UPDATE"),
        lambda own: deliveries.record(own, "del_1", attempt(500), state="pending", delay=9.0),
        lambda tx: tx.execute("SELECT FROM vpay.webhook_deliveries FOR UPDATE NOWAIT"),
    )
    assert recorded.closed
