"""Connections that stop before every statement, and the faults that may befall one there."""

from __future__ import annotations

import importlib
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

from tests.model.sessions import STUCK_S, Killed, Session, current, owner
from vpay_tasks import store
from vpay_tasks.store import db, sql

PATIENT: Final = " ".join(
    f"-c {name}=0"
    for name in (
        # By a clock that jumps they would end what the program has only set aside.
        "lock_timeout",
        "statement_timeout",
        "idle_in_transaction_session_timeout",
        "client_connection_check_interval",
    )
)
LOOK_MS: Final = 4
"""A statement that takes longer may be waiting for a lock: then the server is asked."""


def _names() -> dict[bytes, str]:
    folder = Path(store.__file__).parent
    found: dict[bytes, str] = {}
    for path in sorted(folder.glob("*.sql")):
        statements: sql.Statements = importlib.import_module(f"vpay_tasks.store.{path.stem}").SQL
        found |= {one.query: f"{path.stem}.{one.name}" for one in statements.values()}
    return found


NAMES: Final = _names()


WAITS: Final = """
SELECT format('backend %s (%s) waits for %s', pid, application_name, pg_blocking_pids(pid))
FROM pg_stat_activity
WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""


def turns(url: str, what: str) -> Iterator[None]:
    """For what ends by itself or never, since nobody is stepped meanwhile: look again and
    again, but not for ever."""
    until = time.monotonic() + STUCK_S
    while time.monotonic() < until:
        yield
    with psycopg.connect(url) as connection:
        waits = [text for (text,) in connection.execute(WAITS)]
    raise AssertionError("\n".join([f"comes to rest: not {what}", *waits]))


class Unstepped(psycopg.Connection[Any]):
    """The machine's own. It must meet no lock: whoever holds one is not stepped meanwhile."""

    url = ""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        looks = turns(self.url, "the machine's own statement")
        try:
            wanted = next(gen)
            while True:
                next(looks)
                wanted = gen.send(_poll(self, wanted, 100) or Ready.NONE)
        except StopIteration as end:
            return end.value
        except (AssertionError, KeyboardInterrupt):  # or its answer would be the next one's
            self.cancel()
            self.pgconn.finish()
            raise


class Server:
    """What the machine itself asks Postgres, on a connection that nobody steps."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: Unstepped | None = None

    @property
    def connection(self) -> Unstepped:
        if self._connection is None or self._connection.closed:
            self._connection = Unstepped.connect(self.url, autocommit=True, prepare_threshold=0)
            self._connection.url = self.url
        return self._connection

    def rows(self, query: str, *params: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(query.encode(), params)
        return cursor.fetchall() if cursor.description is not None else []

    def empty(self) -> None:
        """No row of the example before, behind the guards' back. (TRUNCATE makes every file
        anew, which takes longer than an example.)"""
        with self.connection.transaction():
            self.rows("SET LOCAL session_replication_role = replica")
            for (table,) in self.rows(
                "SELECT format('%%I.%%I', schemaname, tablename) FROM pg_tables"
                " WHERE schemaname IN ('vpay', 'model', 'audit') AND tablename <> 'migrations'"
            ):
                self.rows(f"DELETE FROM {table}")

    def waits(self, pid: int) -> bool:
        """Whether that backend waits for a lock. Not by its wait event, which a backend that
        was just given the lock still shows."""
        return bool(self.rows("SELECT cardinality(pg_blocking_pids(%s)) > 0", pid)[0][0])

    def gone(self, pid: int) -> None:
        """Until that backend has let go of everything. One that waits for a lock would look
        after its client five times a second (db.SESSION_OPTIONS) and end, did its clock go on
        (PATIENT): who holds the lock may be stopped, so it is ended here."""
        for _ in turns(self.url, f"backend {pid}, whose connection is cut"):
            if not self.rows("SELECT FROM pg_stat_get_activity(%s)", pid):
                return
            if self.waits(pid):
                self.rows("SELECT pg_terminate_backend(%s)", pid)
            select.poll().poll(1)

    def terminate(self, pid: int) -> None:
        self.rows("SELECT pg_terminate_backend(%s)", pid)
        self.gone(pid)

    def cancel(self, pid: int) -> None:
        self.rows("SELECT pg_cancel_backend(%s)", pid)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Stepped(db.Connection):
    """A connection of the shipping code's, in a session."""

    server: Server
    """The class's own: there is one server at a time."""

    pid = 0
    _whole = False
    """In a pipeline: its statements go out together, so they are one stop."""

    @classmethod
    def connect(cls, conninfo: str = "", **more: Any) -> Any:
        options = f"{more.pop('options', '')} {PATIENT}"
        made = super().connect(conninfo, options=options, **more)
        made.pid = made.info.backend_pid
        process = owner()
        if process is not None:
            process.connections.append(made)
        if more.get("application_name") == "reap":
            made._whole = True
            made.execute("SELECT setseed(0.5)")  # its dice fall alike in every replay
            made._whole = False
        return made

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        session = current()
        if session is None or self._whole:
            return self._drive(gen, session)
        with self._stop(session, _name_of(gen)):
            return self._drive(gen, session)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        session = current()
        assert session is not None
        with self._stop(session, "claims.claim"):
            self._whole = True
            try:
                with super().pipeline() as pipeline:
                    yield pipeline
            finally:
                self._whole = False

    @contextmanager
    def _stop(self, session: Session, name: str) -> Iterator[None]:
        session.connection = self
        session.pause(name)
        commits = name == "COMMIT" or self.info.transaction_status == TransactionStatus.IDLE
        fault, session.fault = session.fault, None
        if fault == "before":
            self._count(session, name, commits, "before")
            self.cut()
            raise psycopg.OperationalError("the connection was cut before the statement was sent")
        yield
        if fault == "after":
            self._count(session, name, commits, "after")
            self.cut()
            raise psycopg.OperationalError("the connection was cut before the answer came")

    def _count(self, session: Session, name: str, commits: bool, when: str) -> None:
        session.world.seen[f"cut {when} a {'commit' if commits else 'statement'}"] += 1
        if name == "settles.settle" and commits:
            session.world.seen[f"cut {when} a settle"] += 1

    def cut(self) -> None:
        """Its socket is gone; returns once the server has noticed."""
        if not self.closed:
            self.pgconn.finish()
            self.server.gone(self.pid)

    def _drive(self, gen: Any, session: Session | None) -> Any:
        if session is not None and session.killed:
            raise Killed
        try:
            wanted = next(gen)
            while True:
                happened = _poll(self, wanted, LOOK_MS)
                if session is not None and session.killed:
                    raise Killed
                if not happened and session is not None and self.server.waits(self.pid):
                    session.world.seen["blocked on a lock"] += 1
                    session.pause(f"lock of {session.at}", self._unblocked)
                else:
                    wanted = gen.send(happened or Ready.NONE)
        except StopIteration as end:
            return end.value
        finally:
            with suppress(Exception):  # what it would still say, to nobody
                gen.close()

    def _unblocked(self) -> bool:
        """Whether its answer is there, or will be: then it is waited for, so that a replay
        finds the same."""
        for _ in turns(self.server.url, f"the statement of backend {self.pid}"):
            if _poll(self, Wait.R, 0):
                break
            if self.server.waits(self.pid):
                return False
            select.poll().poll(1)
        return True


def _poll(connection: psycopg.Connection[Any], wanted: Wait, milliseconds: int) -> Ready:
    poll = select.poll()
    reads = select.POLLIN if wanted & Wait.R else 0
    writes = select.POLLOUT if wanted & Wait.W else 0
    poll.register(connection.pgconn.socket, reads | writes)
    events = next((event for _, event in poll.poll(milliseconds)), 0)
    readable = events & (select.POLLIN | select.POLLHUP | select.POLLERR)
    return Ready((Ready.R if readable else 0) | (Ready.W if events & select.POLLOUT else 0))


def _name_of(gen: Any) -> str:
    """Which statement it is: of ours by name, else by its first word."""
    query = gen.gi_frame.f_locals.get("query") if gen.gi_frame is not None else None
    if isinstance(query, bytes):
        return NAMES.get(query, "?")
    return str(query).split(" ", 1)[0]


class SteppedDatabase(db.Database):
    """The pool's place: connections are made on demand, by the process that asks."""

    def __init__(self, url: str, **more: Any) -> None:
        super().__init__(url, **more)
        self._free: list[db.Connection] = []

    @contextmanager
    def connection(self, *, patience: float = 10.0) -> Iterator[db.Connection]:
        while self._free and not db.usable(self._free[-1]):
            self._free.pop()
        connection = self._free.pop() if self._free else self._made()
        try:
            yield connection
        finally:
            if connection.closed or current_is_killed():
                with suppress(psycopg.Error):
                    connection.close()
            else:
                assert connection.info.transaction_status == TransactionStatus.IDLE
                self._free.append(connection)

    def _made(self) -> db.Connection:
        return db.connect(self.url, application=self.application)


def current_is_killed() -> bool:
    session = current()
    return session is not None and session.killed
