"""Start, settle, release, reap, nudge: the token decides, whoever else writes."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import Eventually
from tests.factories import a_job, a_worker, change, claimed, row, started
from vpay_tasks.core.settling import Ending, Verb
from vpay_tasks.errors import DeadReason, Internal
from vpay_tasks.store import jobs, leases, settles, sql, workers
from vpay_tasks.store.db import Database, connect
from vpay_tasks.store.jobs import StartedJob
from vpay_tasks.store.settles import Settle


def settle(database: Database, job: StartedJob, ending: Ending) -> bool:
    with database.connection() as connection:
        (stood,) = settles.settle(connection, [Settle(job.id, job.lease, ending)])
        return stood


@pytest.fixture
def running(database: Database) -> StartedJob:
    """A started job of a worker that holds no lock."""
    a_worker(database)
    a_job(database, dedupe_key="key")
    with database.connection() as connection:
        (job,) = started(connection)
    return job


def test_of_copies_started_together_behind_a_row_lock_one_starts(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    a_worker(database)
    job = a_job(database)
    with database.connection() as connection:
        (message,) = claimed(connection).messages
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM vpay.jobs WHERE id = %s FOR UPDATE", (job,))

        def copy(_: int) -> int:
            with connect(dsn, application="copy") as own:
                (begun,) = jobs.start(
                    own,
                    [(job, message.lease)],
                    run=uuid.uuid4(),
                    worker="w",
                    run_lease=30,
                    known=[],
                )
                return 0 if begun is None else 1

        with ThreadPoolExecutor(8) as pool:
            copies = [pool.submit(copy, n) for n in range(8)]
            eventually(lambda: _blocked(database) == 8)
            connection.execute("COMMIT")
            assert sorted(future.result() for future in copies) == [0] * 7 + [1]
    found = row(database, job)
    assert found is not None
    assert found["starts"] == 1


def _blocked(database: Database) -> int:
    with database.connection() as connection:
        ((blocked,),) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'copy' AND wait_event_type = 'Lock'"
        ).fetchall()
    return int(blocked)


def test_a_finish_deletes_the_row_and_a_second_one_finds_nothing(
    database: Database, running: StartedJob
) -> None:
    assert settle(database, running, Ending(Verb.FINISH))
    assert row(database, running.id) is None
    assert not settle(database, running, Ending(Verb.FINISH))


@pytest.mark.parametrize("verb", list(Verb))
def test_a_settle_by_another_token_changes_nothing(
    database: Database, running: StartedJob, verb: Verb
) -> None:
    before = row(database, running.id)
    stale = StartedJob(running.id, uuid.uuid4(), "k", "default", {}, 0, 0, 0)
    reason = DeadReason.BY_TASK if verb is Verb.PARK else None
    assert not settle(database, stale, Ending(verb, 1.0, reason=reason))
    assert row(database, running.id) == before


def test_the_same_worker_with_a_stale_token_settles_nothing(
    database: Database, running: StartedJob
) -> None:
    """A fence on locked_by alone would let a stale thread of the same worker through."""
    with database.connection() as connection:
        jobs.release(connection, {running.id: running.lease})
        (again,) = started(connection, worker="w_test")
    assert not settle(database, running, Ending(Verb.FINISH))
    assert settle(database, again, Ending(Verb.FINISH))


def test_counters_follow_the_verb(database: Database, running: StartedJob) -> None:
    change(database, "failures = 3, crashes = 2", running.id)
    assert settle(database, running, Ending(Verb.RETRY, 60, "why"))
    found = row(database, running.id)
    assert found is not None
    assert (found["failures"], found["crashes"], found["last_error"]) == (4, 0, "why")
    assert found["settled_by"] == running.lease
    change(database, "run_at = now()", running.id)
    with database.connection() as connection:
        (again,) = started(connection)
    assert settle(database, again, Ending(Verb.AGAIN, 60))
    found = row(database, running.id)
    assert found is not None
    assert (found["failures"], found["last_error"], found["starts"]) == (0, "why", 2)


def test_a_parked_row_keeps_its_key_and_is_never_claimed(
    database: Database, running: StartedJob
) -> None:
    ending = Ending(Verb.PARK, error="no", reason=DeadReason.BY_TASK)
    assert settle(database, running, ending)
    with database.transaction() as tx:
        again = jobs.enqueue(tx, "deliver_webhook", {}, dedupe_key="key")
    assert (again.inserted, again.id) == (False, running.id)
    with database.connection() as connection:
        assert claimed(connection).messages == []
        assert not jobs.pull_forward(connection, "key", floor=0)


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
def test_an_error_text_that_no_column_holds_is_refused_by_the_store_as_bad_data(
    database: Database, running: StartedJob, text: str
) -> None:
    with pytest.raises(Internal) as caught:
        settle(database, running, Ending(Verb.RETRY, 1, text))
    assert sql.is_bad_data(caught.value)


def test_a_nudge_during_a_run_is_kept_for_its_settle(
    database: Database, running: StartedJob
) -> None:
    with database.connection() as connection:
        assert jobs.pull_forward(connection, "key", floor=7)
        assert not jobs.pull_forward(connection, "key", floor=9), "a later one is no news"
        assert jobs.pull_forward(connection, "key", floor=5)
    assert settle(database, running, Ending(Verb.AGAIN, 3_600))
    with database.connection() as connection:
        ((wait,),) = connection.execute(
            "SELECT extract(epoch FROM run_at - now())::float8 FROM vpay.jobs"
        ).fetchall()
    assert 0 < wait <= 5


def test_a_nudged_run_that_finishes_comes_back_instead(
    database: Database, running: StartedJob
) -> None:
    with database.connection() as connection:
        jobs.pull_forward(connection, "key", floor=0)
        assert settle(database, running, Ending(Verb.FINISH))
        (again,) = started(connection)
    assert again.id == running.id
    assert settle(database, again, Ending(Verb.FINISH)), "a start clears the nudge"
    assert row(database, running.id) is None


@pytest.mark.parametrize(
    ("delay", "wait", "due"), [(60, 10, 10), (5, 10, 5), (60, 0, 0), (0, 0, 0), (0, 10, 0)]
)
def test_a_pull_forward_moves_only_what_is_due_later_than_it_may_be(
    database: Database, delay: float, wait: float, due: float
) -> None:
    a_job(database, delay=delay, dedupe_key="k")
    with database.connection() as connection:
        connection.execute("BEGIN")
        for moved in (delay > due, False):
            assert jobs.stands_by(connection, "k", floor=3, wait=wait) is not moved
            assert jobs.pull_forward(connection, "k", floor=3, wait=wait) is moved
        connection.execute("COMMIT")
        ((left,),) = connection.execute(
            "SELECT extract(epoch FROM run_at - created_at)::float8 FROM vpay.jobs"
        ).fetchall()
    assert left == pytest.approx(due, abs=5)


def test_what_a_nudge_adds_is_added_to_a_row_in_any_state_and_for_the_next_run(
    database: Database, running: StartedJob
) -> None:
    with database.connection() as connection:
        for _ in range(2):
            jobs.pull_forward(connection, "key", floor=5, adding={"a": True})
            assert jobs.stands_by(connection, "key", floor=5, adding={"a": True})
        assert not jobs.stands_by(connection, "key", floor=5, adding={"b": True})
        assert not jobs.stands_by(connection, "key", floor=4, adding={"a": True})
        assert not jobs.stands_by(connection, "another", floor=5)
        assert settle(database, running, Ending(Verb.AGAIN, 60))
        assert jobs.pull_forward(connection, "key", wait=3_600, adding={"c": 1})
        change(database, "run_at = now()", running.id)
        (again,) = started(connection)
    assert (running.payload, again.payload) == ({}, {"a": True, "c": 1})


def test_a_claimed_row_is_left_to_its_run(database: Database) -> None:
    a_worker(database)
    job = a_job(database, dedupe_key="key")
    with database.connection() as connection:
        claimed(connection)
        before = row(database, job)
        assert jobs.stands_by(connection, "key")
        assert not jobs.pull_forward(connection, "key")
    assert row(database, job) == before


def test_a_nudge_that_waits_for_the_settle_of_its_run_is_not_lost(
    database: Database, dsn: str, running: StartedJob, eventually: Eventually
) -> None:
    with database.connection() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("BEGIN")
        settles.settle(connection, [Settle(running.id, running.lease, Ending(Verb.AGAIN, 3_600))])

        def nudge() -> bool:
            with connect(dsn, application="copy") as own:
                return jobs.pull_forward(own, "key", floor=0)

        nudged = pool.submit(nudge)
        eventually(lambda: _blocked(database) == 1)
        connection.execute("COMMIT")
        assert nudged.result()
    with database.connection() as connection:
        assert len(claimed(connection).messages) == 1


def test_an_expired_claim_costs_nothing_and_an_expired_run_is_a_crash(
    database: Database,
) -> None:
    a_worker(database)
    ran, never = a_job(database), a_job(database)
    with database.connection() as connection:
        first, _ = claimed(connection).messages
        jobs.start(
            connection, [(ran, first.lease)], run=uuid.uuid4(), worker="w", run_lease=1, known=[]
        )
        change(database, "lease_until = now() - interval '1 ms'", ran)
        change(database, "lease_until = now() - interval '1 ms'", never)
        reaped = {item.id: item for item in leases.reap_expired(connection, protected=[])}
    assert (reaped[ran].why, reaped[ran].crashes) == ("run_expired", 1)
    assert (reaped[never].why, reaped[never].crashes) == ("claim_expired", 0)
    found = row(database, ran)
    assert found is not None
    assert found["failures"] == 0


@pytest.mark.parametrize(("protected", "parked"), [([], True), (["a_kind"], False)])
def test_the_fifth_crash_in_a_row_parks_a_job_unless_its_kind_is_protected(
    database: Database, running: StartedJob, protected: list[str], parked: bool
) -> None:
    change(database, "crashes = 4, lease_until = now() - interval '1 ms'", running.id)
    with database.connection() as connection:
        (reaped,) = leases.reap_expired(connection, protected=protected)
    assert (reaped.crashes, reaped.parked) == (5, parked)
    found = row(database, running.id)
    assert found is not None
    assert found["dead_reason"] == ("crashed" if parked else None)


@pytest.mark.parametrize(
    ("before", "most"), [(0, 0), (1, 10), (2, 20), (3, 40), (9, 2_560), (10, 3_600), (10**6, 3_600)]
)
def test_a_crashed_row_runs_at_once_and_from_its_second_crash_on_waits_a_random_while(
    database: Database, running: StartedJob, before: int, most: float
) -> None:
    change(database, f"crashes = {before}, lease_until = now() - interval '1 ms'", running.id)
    with database.connection() as connection:
        leases.reap_expired(connection, protected=["a_kind"])
        ((wait,),) = connection.execute(
            "SELECT extract(epoch FROM run_at - now())::float8 FROM vpay.jobs"
        ).fetchall()
    assert wait <= most
    assert before == 0 or wait > -1, "counted from its crash, not from when it was due"


def test_a_nudge_during_a_run_outlives_its_crash(database: Database, running: StartedJob) -> None:
    change(database, "crashes = 8", running.id)
    with database.connection() as connection:
        assert jobs.pull_forward(connection, "key", floor=3)
        change(database, "lease_until = now() - interval '1 ms'", running.id)
        leases.reap_expired(connection, protected=["a_kind"])
        ((wait,),) = connection.execute(
            "SELECT extract(epoch FROM run_at - now())::float8 FROM vpay.jobs"
        ).fetchall()
    assert wait <= 3


@pytest.mark.parametrize(
    ("silence", "settling", "frees"),
    [
        pytest.param(-1.0, 3_600.0, False, id="a session too young"),
        pytest.param(3_600.0, -1.0, False, id="silence counts from the session's own beginning"),
        pytest.param(-1.0, -1.0, True, id="long silent, as an old session sees it"),
    ],
)
def test_a_reaper_trusts_no_silence_that_it_has_not_heard_itself(
    database: Database, silence: float, settling: float, frees: bool
) -> None:
    worker = a_worker(database, holds_lock=True)
    a_job(database)
    with database.connection() as connection:
        started(connection, worker=worker)
        connection.execute(
            "UPDATE vpay.workers SET seen_at = now() - interval '1 day', slowest_pulse = '0'"
        )
        reaped = leases.reap_gone(connection, protected=[], silence=silence, settling=settling)
    assert bool(reaped) is frees


def test_a_worker_is_dead_when_its_lock_is_gone_and_it_is_silent(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    worker = a_worker(database, holds_lock=True)
    a_job(database)
    with database.connection() as connection, connect(dsn, application="w") as pulse:
        assert workers.try_lock(pulse, worker)
        (job,) = started(connection, worker=worker)
        eventually(lambda: _session_age(connection) > leases.SETTLING_S + leases.SILENCE_S)
        connection.execute("UPDATE vpay.workers SET seen_at = now() - interval '1 hour'")
        assert leases.reap_gone(connection, protected=[]) == [], "stopped is not dead"
        pulse.close()
        eventually(lambda: _locks(connection) == 0)
        (reaped,) = leases.reap_gone(connection, protected=[])
    assert (reaped.id, reaped.why, reaped.crashes) == (job.id, "worker_gone", 1)


def _session_age(connection: sql.Connection) -> float:
    ((age,),) = connection.execute(
        "SELECT extract(epoch FROM now() - backend_start)::float8 FROM pg_stat_activity"
        " WHERE pid = pg_backend_pid()"
    ).fetchall()
    return float(age)


def _locks(connection: sql.Connection) -> int:
    ((locks,),) = connection.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 87"
    ).fetchall()
    return int(locks)


def test_renewals_and_settles_in_groups_never_deadlock(database: Database, dsn: str) -> None:
    a_worker(database, threads=64)
    for _ in range(60):
        a_job(database)
    with database.connection() as connection:
        running = started(connection)
    tokens = {job.id: job.lease for job in running}
    stop = threading.Event()

    def renew() -> int:
        with connect(dsn, application="renew") as own:
            rounds = 0
            while not stop.is_set():
                leases.renew(own, list(reversed(tokens.items())), run_lease=30)
                rounds += 1
            return rounds

    with ThreadPoolExecutor(2) as pool, database.connection() as connection:
        renewing = pool.submit(renew)
        try:
            for job in running:
                group = [Settle(other.id, other.lease, Ending(Verb.AGAIN, 0)) for other in running]
                group = [item for item in group if item.id != job.id]
                settles.settle(connection, group[::-1])
                connection.execute(
                    "UPDATE vpay.jobs SET lease = t.lease, locked_by = 'w', locked_at = now(),"
                    " lease_until = now(), started_at = now()"
                    " FROM unnest(%s::bigint[], %s::uuid[]) AS t (id, lease)"
                    " WHERE jobs.id = t.id AND jobs.lease IS NULL",
                    (list(tokens), list(tokens.values())),
                )
        finally:
            stop.set()
        assert renewing.result() > 0


def test_rows_parked_as_unknown_run_again_once_their_kind_is_known(database: Database) -> None:
    job = a_job(database, "newer")
    change(database, "parked_at = now(), dead_reason = 'unknown_kind'", job)
    with database.connection() as connection:
        assert jobs.adopt_unknown(connection, ["other"]) == []
        assert jobs.adopt_unknown(connection, ["newer"]) == [job]
