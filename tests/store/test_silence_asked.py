"""What is asked about a session that says nothing, and what becomes of it then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import generators
from psycopg.waiting import Ready

from tests.conftest import Eventually
from tests.e2e import proxy
from tests.silences import heard, impatient
from vpay_tasks.errors import AmbiguousCommit
from vpay_tasks.store import db, silence, sql
from vpay_tasks.store.silence import Told
from vpay_tasks.transport import Pooled

LOCK = sql.Statement("tests", "lock", "SELECT pg_advisory_xact_lock(7)")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)


@contextlib.contextmanager
def held(dsn: str, connection: db.Connection) -> Iterator[Future[list[sql.Row]]]:
    """In the block `connection` is at work: it waits for a lock. Its end."""
    with psycopg.connect(dsn, autocommit=True) as holder, ThreadPoolExecutor(1) as aside:
        holder.execute("SELECT pg_advisory_lock(7)")
        try:
            yield aside.submit(sql.run, connection, LOCK)
        finally:
            holder.execute("SELECT pg_advisory_unlock(7)")


@pytest.mark.parametrize(
    ("way", "session"), [(str, "SELECT"), (str, "SET track_activities = off"), (Pooled, "SELECT")]
)
def test_a_statement_that_is_at_work_is_not_hung_up_on(
    dsn: str, eventually: Eventually, way: type[str], session: str
) -> None:
    with db.connect(way(dsn), application="tests") as connection:
        connection.execute(session.encode())
        told = heard(connection)
        with held(dsn, connection) as done:
            eventually(lambda: told[:2] == [Told.AT_WORK] * 2)
            assert not done.done()
        assert len(done.result()) == 1


@pytest.fixture
def login(dsn: str) -> Iterator[str]:
    """A login of its own, by its URL, that becomes another role at once."""
    name = f"silent_{uuid4().hex[:12]}"
    parts = urlsplit(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name}_group; CREATE ROLE {name} LOGIN".encode())
        connection.execute(f"GRANT {name}_group TO {name}".encode())
        connection.execute(f"ALTER ROLE {name} SET role = {name}_group".encode())
        yield parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}").geturl()
        connection.execute(f"DROP ROLE {name}; DROP ROLE {name}_group".encode())


def test_a_login_that_becomes_another_role_is_asked_about_as_itself(
    dsn: str, login: str, eventually: Eventually
) -> None:
    with db.connect(login, application="tests") as connection:
        told = heard(connection)
        with held(dsn, connection) as done:
            eventually(lambda: told[:2] == [Told.AT_WORK] * 2)
        assert len(done.result()) == 1


def limited(dsn: str, login: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {urlsplit(login).username} CONNECTION LIMIT 1".encode())
    return login


@pytest.mark.parametrize("way", [Pooled, limited])
def test_who_can_not_be_asked_is_waited_for_and_not_for_ever(
    dsn: str,
    login: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    way: object,
) -> None:
    monkeypatch.setattr(silence, "QUESTIONS_MAX", 3)
    url = limited(dsn, login) if way is limited else Pooled(login)
    with db.connect(url, application="tests") as connection:
        told = heard(connection)
        with held(dsn, connection) as done:
            eventually(done.done)
            with pytest.raises(AmbiguousCommit, match="no answer"):
                done.result()
        assert told == [Told.UNKNOWN] * 3


def test_an_answer_begins_the_count_of_questions_anew(dsn: str, login: str) -> None:
    with (
        contextlib.closing(db.connect(limited(dsn, login), application="tests")) as connection,
        psycopg.connect(dsn, autocommit=True) as holder,
    ):
        holder.execute("SELECT pg_advisory_lock(7)")
        connection.pgconn.send_query(b"SELECT pg_advisory_xact_lock(7)")
        connection.pgconn.flush()
        assert [connection._look(0), connection._look(1)] == [1, 2]
        holder.execute(f"ALTER ROLE {urlsplit(login).username} CONNECTION LIMIT -1".encode())
        assert connection._look(2) == 0


def test_of_several_servers_the_one_that_fell_silent_is_asked(
    dsn: str, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(db.CONNECT_OPTIONS, "connect_timeout", 2)  # the library's least
    with proxy.before(dsn) as (line, through):
        parts = urlsplit(through)
        both = parts._replace(netloc=f"{parts.netloc},127.0.0.1:{urlsplit(dsn).port}").geturl()
        with contextlib.closing(db.connect(both, application="tests")) as connection:
            told = heard(connection)
            with held(dsn, connection) as done:
                line.fall_silent()
                eventually(done.done)
                with pytest.raises(AmbiguousCommit):
                    done.result()
            assert told == [Told.NOBODY]


def test_who_waits_for_its_client_or_has_none_is_not_at_work(
    dsn: str, eventually: Eventually
) -> None:
    with db.connect(dsn, application="tests") as other, db.connect(dsn, application="asks") as ask:

        def rests(pid: int = other.info.backend_pid) -> bool:
            return silence.at_work(ask, pid) is Told.RESTS

        eventually(rests)  # idle
        other.execute("CREATE TABLE public.taken (n int)")
        with other.cursor().copy("COPY public.taken FROM STDIN"):
            eventually(rests)  # it waits for its rows
        query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
        ((checkpointer,),) = ask.execute(query).fetchall()
        assert rests(checkpointer)
        assert not rests(ask.info.backend_pid)
        assert rests(-1), "gone"


def test_behind_a_pooler_only_work_that_is_older_than_an_answer_may_be_counts(
    dsn: str, login: str, eventually: Eventually
) -> None:
    with (
        db.connect(Pooled(dsn), application="tests") as connection,
        db.connect(dsn, application="asks") as ask,
        held(dsn, connection),
    ):
        connection.answer_within = None
        eventually(lambda: silence.old_work(ask, 0.0) is Told.AT_WORK)
        assert silence.old_work(ask, 3600.0) is Told.RESTS
        with db.connect(login, application="another") as other:
            assert silence.old_work(other, 0.0) is Told.RESTS, "not its own"


def test_a_server_that_is_at_work_is_asked_again_only_after_a_pause(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "MARGIN_S", 3600.0)
    with (
        db.connect(dsn, application="tests") as connection,
        psycopg.connect(dsn, autocommit=True) as holder,
    ):
        told = heard(connection)
        holder.execute("SELECT pg_advisory_lock(7)")
        connection.pgconn.send_query(b"SELECT pg_advisory_xact_lock(7)")
        waiting = connection._listening(generators.fetch(connection.pgconn), 0.0)
        next(waiting)
        for _ in range(5):
            waiting.send(Ready.NONE)
        assert told == [Told.AT_WORK]
        waiting.close()
        connection.close()
