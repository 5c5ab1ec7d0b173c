"""Behind a proxy that hangs, and acknowledges every byte: a connection that says nothing ends as
one that was cut, and one whose server is at work does not."""

from __future__ import annotations

import contextlib
import functools
import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg import generators
from psycopg.waiting import Ready
from pydantic import SecretStr

from tests.conftest import Eventually
from tests.e2e import proxy
from tests.factories import a_job, a_worker, row
from tests.runtime.bench import Bench
from tests.silences import impatient
from vpay_tasks.config import Settings
from vpay_tasks.core.task import Kind, Registry
from vpay_tasks.errors import AmbiguousCommit, Storage
from vpay_tasks.runtime.broker import make
from vpay_tasks.runtime.dispatcher import Dispatcher
from vpay_tasks.store import db, jobs, silence, sql
from vpay_tasks.transport import Pooled

ASK = sql.Statement("tests", "ask", "SELECT 7")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)


@pytest.fixture
def line(dsn: str) -> Iterator[tuple[proxy.Proxy, str]]:
    with proxy.before(dsn) as found:
        yield found


def by_itself(connection: db.Connection) -> None:
    sql.run(connection, ASK)


def in_one_round_trip(connection: db.Connection) -> None:
    sql.run_together(connection, [sql.Bound(ASK, {})])


@pytest.mark.parametrize("way", [str, Pooled])
@pytest.mark.parametrize("ask", [by_itself, in_one_round_trip])
def test_a_silent_connection_ends_as_a_lost_one(
    line: tuple[proxy.Proxy, str],
    caplog: pytest.LogCaptureFixture,
    ask: Callable[[db.Connection], None],
    way: type[str],
) -> None:
    hung, through = line
    with contextlib.closing(db.connect(way(through), application="tests")) as connection:
        ask(connection)
        hung.forget()
        with pytest.raises(AmbiguousCommit, match="no answer"):
            ask(connection)
        assert sql.broken(connection)
        assert not db.usable(connection)
    lines = [getattr(record, "fields", {}) for record in caplog.records]
    told = [(one["application"], one["reason"]) for one in lines if "reason" in one]
    assert told == [("tests", "it is not at work")]


def test_a_pools_silent_connection_costs_its_transaction_and_no_other(
    line: tuple[proxy.Proxy, str], database: db.Database
) -> None:
    hung, through = line
    pool = db.Database(through, size=1, application="tests")

    def falls_silent(tx: db.Connection) -> None:
        hung.forget()
        jobs.find_by_key(tx, "x")

    for _ in range(2):
        with pytest.raises(Storage) as caught, pool.transaction() as tx:
            falls_silent(tx)
        assert not isinstance(caught.value, AmbiguousCommit)
        with pool.transaction() as tx:
            assert jobs.find_by_key(tx, "x") is None
    pool.close()


def test_a_commit_into_the_silence_is_ambiguous(
    line: tuple[proxy.Proxy, str], database: db.Database
) -> None:
    hung, through = line
    pool = db.Database(through, application="tests")
    with pytest.raises(AmbiguousCommit), pool.transaction() as tx:
        assert jobs.enqueue(tx, Kind("a_kind"), {}, dedupe_key="lost").id is not None
        hung.forget()
    pool.close()
    with database.connection() as connection:
        assert jobs.find_by_key(connection, "lost") is None


def gone(database: db.Database, job: int) -> bool:
    return row(database, job) is None


def test_a_settle_into_the_silence_is_looked_up_and_sent_again(
    line: tuple[proxy.Proxy, str], database: db.Database, eventually: Eventually
) -> None:
    hung, through = line
    a_worker(database)
    bench = Bench(database, through)
    runs: list[int] = []

    def handler(job: Any, ctx: Any) -> None:
        runs.append(job.id)
        if len(runs) == 2:
            hung.forget()

    bench.task(handler)
    for _ in range(3):
        job = a_job(database)
        bench.run()
        eventually(functools.partial(gone, database, job))
    bench.close()
    assert len(runs) == 3


def test_a_dispatcher_behind_a_proxy_that_hangs_claims_again(
    line: tuple[proxy.Proxy, str], settings: Settings, database: db.Database
) -> None:
    hung, through = line
    table = settings.database.model_copy(update={"url": SecretStr(through)})
    broker = make(settings.broker.url.get_secret_value())
    dispatcher = Dispatcher(settings.model_copy(update={"database": table}), Registry(), broker)
    a_worker(database)
    for _ in range(2):
        job = a_job(database)
        dispatcher.look()
        assert (row(database, job) or {})["lease"] is not None
        hung.forget()
        with pytest.raises(AmbiguousCommit):
            dispatcher.look()
    dispatcher.close()
    broker.close()


def test_an_answer_that_is_there_when_its_time_is_over_is_read(dsn: str) -> None:
    """As for a process that was stopped, and goes on behind its deadline."""
    with db.connect(dsn, application="tests") as connection:
        connection.pgconn.send_query(b"SELECT 7")
        connection.pgconn.flush()
        select.select([connection.fileno()], [], [])
        waiting = connection._listening(generators.fetch(connection.pgconn), 0.0)
        next(waiting)
        for _ in range(3):
            waiting.send(Ready.NONE)
        with pytest.raises(StopIteration) as read:
            waiting.send(Ready.R)
        assert read.value.value.get_value(0, 0) == b"7"
        assert connection.pgconn.get_result() is None
        by_itself(connection)


def test_who_listens_waits_as_long_as_it_likes(dsn: str) -> None:
    with db.connect(dsn, application="tests") as connection:
        jobs.listen(connection)
        assert not db.notified(connection, timeout=0.5)
        by_itself(connection)


def test_a_limit_is_what_the_server_has_and_there_is_always_one(dsn: str) -> None:
    for way, asked, held in ((str, 90, 90), (str, 0, 0), (Pooled, 90, db.STATEMENT_TIMEOUT_S)):
        with db.connect(way(dsn), application="tests", statement_timeout=asked) as connection:
            assert connection.answer_within == held + silence.MARGIN_S
