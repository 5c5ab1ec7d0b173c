"""The unit of work's endings, the pool and the fork, hints after a commit."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Eventually
from tests.e2e import proxy
from tests.factories import a_job, row
from vpay_tasks.errors import AmbiguousCommit, Conflict, Internal, Storage
from vpay_tasks.store import jobs, sql
from vpay_tasks.store.db import (
    Abandon,
    Connection,
    Database,
    connect,
    notified,
    unit_of_work,
    usable,
)
from vpay_tasks.store.hints import Hinter


@pytest.fixture
def effects(database: Database) -> Database:
    with database.connection() as connection:
        connection.execute("CREATE TABLE public.effects (n int)")
    return database


def count(database: Database) -> int:
    with database.connection() as connection:
        ((found,),) = connection.execute("SELECT count(*) FROM public.effects").fetchall()
    return int(found)


def write(tx: Connection) -> None:
    tx.execute("INSERT INTO public.effects VALUES (1)")


def test_a_unit_of_work_commits_when_its_block_returns(effects: Database) -> None:
    with effects.transaction() as tx:
        write(tx)
    assert count(effects) == 1


@pytest.mark.parametrize("refused", ["half \ud800", "no number"])
def test_statements_that_are_sent_together_are_all_or_nothing(
    effects: Database, refused: str
) -> None:
    writes = sql.Statement("tests", "writes", "INSERT INTO public.effects VALUES (1)")
    refuses = sql.Statement("tests", "refuses", "SELECT %(text)s::text::integer")
    with effects.connection() as connection:
        calls = [sql.Bound(writes, {}), sql.Bound(refuses, {"text": refused})]
        with pytest.raises(Internal):
            sql.run_together(connection, calls)
        assert count(effects) == 0
        calls[1] = sql.Bound(refuses, {"text": "7"})
        assert sql.run_together(connection, calls) == [(7,)]
    assert count(effects) == 1


def test_statements_that_are_sent_together_commit_nobody_elses_work(effects: Database) -> None:
    nothing = sql.Bound(sql.Statement("tests", "nothing", "SELECT 7"), {})
    with effects.connection() as connection:
        connection.execute("BEGIN")
        write(connection)
        with pytest.raises(Internal, match="inside a transaction"):
            sql.run_together(connection, [nothing])
        connection.execute("ROLLBACK")
        assert sql.run_together(connection, [nothing]) == [(7,)]
    assert count(effects) == 0


def test_it_rolls_back_on_an_error_and_lets_it_through(effects: Database) -> None:
    def fails(tx: Connection) -> None:
        write(tx)
        raise LookupError

    with pytest.raises(LookupError), effects.transaction() as tx:
        fails(tx)
    assert count(effects) == 0


def test_an_abandoned_one_is_no_error(effects: Database) -> None:
    def abandons(tx: Connection) -> None:
        write(tx)
        raise Abandon

    with effects.transaction() as tx:
        abandons(tx)
    assert count(effects) == 0


def test_a_swallowed_sql_error_never_becomes_a_silent_rollback(effects: Database) -> None:
    def swallows(tx: Connection) -> None:
        write(tx)
        with pytest.raises(psycopg.Error):
            tx.execute("SELECT 1 / 0")

    with pytest.raises(Internal, match="swallowed"), effects.transaction() as tx:
        swallows(tx)
    assert count(effects) == 0


def test_a_rollback_that_cant_be_sent_keeps_the_blocks_own_error(effects: Database) -> None:
    def loses_its_backend(tx: Connection) -> None:
        write(tx)
        with effects.connection() as other:
            other.execute("SELECT pg_terminate_backend(%s)", (tx.info.backend_pid,))
        raise LookupError

    with pytest.raises(LookupError), effects.transaction() as tx:
        loses_its_backend(tx)
    assert count(effects) == 0


def test_an_abandoned_one_whose_rollback_cant_be_sent_is_no_error_and_a_line(
    effects: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def loses_its_backend(tx: Connection) -> None:
        write(tx)
        with effects.connection() as other:
            other.execute("SELECT pg_terminate_backend(%s)", (tx.info.backend_pid,))
        raise Abandon

    with effects.transaction() as tx:
        loses_its_backend(tx)
    lines = [getattr(record, "fields", {}).get("action") for record in caplog.records]
    assert lines.count("rollback_unsent") == 1
    assert count(effects) == 0


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_a_block_that_ends_its_transaction_itself_is_told_so(
    effects: Database, ending: str
) -> None:
    with pytest.raises(Internal, match="ended inside"), effects.transaction() as tx:
        write(tx)
        tx.execute(ending.encode())
    with effects.transaction() as tx:
        write(tx)
    assert count(effects) == (2 if ending == "COMMIT" else 1)


def test_a_commit_that_the_database_refuses_is_not_ambiguous(effects: Database) -> None:
    with effects.connection() as connection:
        connection.execute(
            "ALTER TABLE public.effects ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED"
        )
    with pytest.raises(Conflict), effects.transaction() as tx:
        write(tx)
        write(tx)
    assert count(effects) == 0


def test_a_commit_that_never_arrived_is_ambiguous_too(effects: Database, dsn: str) -> None:
    with proxy.before(dsn) as (line, through):
        shaky = Database(through)
        with pytest.raises(AmbiguousCommit), shaky.transaction() as tx:
            write(tx)
            line.swallow_commit()
        shaky.close()
    assert count(effects) == 0, "here it had not happened"


def test_a_commit_whose_answer_is_lost_is_ambiguous(effects: Database, dsn: str) -> None:
    with proxy.before(dsn) as (line, through):
        shaky = Database(through)
        with pytest.raises(AmbiguousCommit), shaky.transaction() as tx:
            write(tx)
            line.cut_on_answer()
        shaky.close()
    assert count(effects) == 1, "here it had happened"


def test_a_connection_that_breaks_inside_is_no_ambiguous_commit(
    effects: Database, dsn: str
) -> None:
    with proxy.before(dsn) as (line, through):
        shaky = Database(through)

        def breaks(tx: Connection) -> None:
            line.refuse()
            jobs.find_by_key(tx, "x")

        with pytest.raises(Storage) as caught, shaky.transaction() as tx:
            breaks(tx)
        assert not isinstance(caught.value, AmbiguousCommit)
        shaky.close()


def test_a_pool_made_before_the_fork_is_refused_behind_it(database: Database) -> None:
    with database.connection():
        pass
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            with database.connection():
                os.write(writer, b"used the parent's connection")
        except Internal:
            os.write(writer, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        assert answer.read() == b"refused"


def test_an_idle_connection_whose_server_hung_up_is_seen_without_asking(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    connection = connect(dsn, application="idle")
    assert usable(connection)
    with database.connection() as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    eventually(lambda: not usable(connection))
    assert connection.closed


def test_the_pool_replaces_connections_that_a_restart_took(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    with database.connection() as connection:
        pid = connection.info.backend_pid
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        query = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
        eventually(lambda: other.execute(query, (pid,)).fetchone() is None)
    with database.transaction() as tx:
        assert tx.execute("SELECT 1").fetchone() == (1,)


@pytest.fixture
def hinting(dsn: str) -> Iterator[Database]:
    database = Database(dsn, hints=Hinter(dsn))
    yield database
    database.close()


def test_a_commit_with_a_hint_wakes_a_listener_and_pulls_the_job_forward(
    hinting: Database, dsn: str, eventually: Eventually
) -> None:
    job = a_job(hinting, dedupe_key="later", delay=600)
    with connect(dsn, application="listener") as listener:
        jobs.listen(listener)
        with hinting.transaction() as tx:
            tx.hints.add("later")
        assert notified(listener, timeout=20)
    with hinting.connection() as connection:
        query = "SELECT 1 FROM vpay.jobs WHERE id = %s AND run_at <= now()"
        assert connection.execute(query, (job,)).fetchone()


def test_a_transaction_that_rolled_back_hints_nothing(hinting: Database) -> None:
    job = a_job(hinting, dedupe_key="later", delay=600)
    before = row(hinting, job)

    def fails(tx: Connection) -> None:
        tx.hints.add("later")
        raise LookupError

    with pytest.raises(LookupError), hinting.transaction() as tx:
        fails(tx)
    hinting.close()  # sends what is left
    assert row(hinting, job) == before


def test_a_caller_with_little_time_does_not_wait_long_for_a_connection(dsn: str) -> None:
    database = Database(dsn, size=1, application="tests")
    taken, give_back = threading.Event(), threading.Event()

    def take() -> None:
        with database.connection():
            taken.set()
            give_back.wait(3)

    thread = threading.Thread(target=take)
    thread.start()
    assert taken.wait(20)
    with pytest.raises(Storage), database.transaction(patience=0.1):
        pass
    give_back.set()
    thread.join()
    with database.transaction(patience=0) as tx:
        assert tx.execute("SELECT 1").fetchone() == (1,)
    database.close()


def test_an_enqueue_notifies_nobody_inside_its_transaction(dsn: str) -> None:
    """Notifying commits are serialised database-wide, and a full queue would fail them: the
    hint is sent behind the commit, on a connection of its own."""
    with connect(dsn, application="both") as connection:
        jobs.listen(connection)
        with unit_of_work(connection) as tx:
            jobs.enqueue(tx, "deliver_webhook", {})
            jobs.pull_forward(tx, "key", floor=0)
        # One's own notifications come with the commit's answer, so this is not too early.
        assert not notified(connection, timeout=0)
        jobs.wake(connection)
        assert notified(connection, timeout=0)


def test_a_committed_transaction_never_raises_for_want_of_a_thread_to_hint_in(dsn: str) -> None:
    database = Database(dsn, hints=Hinter(dsn))
    with database.connection():
        pass  # the pool has threads of its own
    before = threading.stack_size(1 << 46)  # more than there is: no thread starts
    try:
        with database.transaction() as tx:
            tx.execute("CREATE TABLE kept (id int)")
            tx.hints.add("")
    finally:
        threading.stack_size(before)
    with database.transaction() as tx:  # and there is one again
        tx.execute("INSERT INTO kept VALUES (1)")
        tx.hints.add("")
    database.close()


def test_a_transaction_left_open_is_over_before_its_silence_is(dsn: str) -> None:
    """A proxy that wakes up would deliver a COMMIT that nobody waits for any more."""
    name = "idle_in_transaction_session_timeout"
    with connect(dsn, application="tests") as connection:
        query = "SELECT extract(epoch FROM current_setting(%s)::interval)::float8"
        ((idle,),) = connection.execute(query, (name,)).fetchall()
        assert connection.answer_within is not None
        assert 0 < idle < connection.answer_within
