"""Connections: the pool, the unit of work, and hints after a commit.

A unit of work commits when its block returns, rolls back on an error, and has a third,
normal ending: `raise Abandon()` rolls back and is no error. "Forgot to commit" can't be
written.
"""

from __future__ import annotations

import functools
import os
import select
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, Protocol, TypeGuard

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from vpay_tasks.config import KeysTable, WindowsTable
from vpay_tasks.errors import Internal, Severity, Storage, VpayError, describe
from vpay_tasks.store import silence, sql, standbys, way
from vpay_tasks.telemetry import say
from vpay_tasks.transport import Pooled, Verified

Abandon = psycopg.Rollback
"""Raise it in a unit of work to roll back and go on behind the block."""

SESSION_OPTIONS: Final = (
    # A process killed inside a statement: the backend notices at once, not when it ends.
    "-c client_connection_check_interval=200ms"
    # A bug that leaves a transaction open would hold its locks and the xmin horizon.
    " -c idle_in_transaction_session_timeout=60s"
    # Compiling a plan costs more than any statement of ours runs.
    " -c jit=off"
    # A commit whose wait for its standby was called off says so in a warning only (standbys.py).
    " -c client_min_messages=notice"
)
CLAIM_PLANS: Final = (
    # Planning a claim, a start or a settle anew each time, which Postgres would go on doing,
    # costs as much as running it.
    " -c plan_cache_mode=force_generic_plan"
    # But a plan that is kept may have been made while the table was empty: leave it no way
    # into the table but an index in its order, the right one whatever the table has become.
    " -c enable_seqscan=off"
    " -c enable_bitmapscan=off"
    " -c enable_mergejoin=off"
)
"""For a connection that claims, and does nothing else often."""
RUN_PLANS: Final = (
    CLAIM_PLANS
    # Row by row by their ids; hashing them, a plan made for a hundred rows reads a million. (A
    # claim needs its hashes, for what it has picked.)
    + " -c enable_hashjoin=off"
)
"""For a connection that starts or settles."""
WALK_PLANS: Final = (
    RUN_PLANS
    # An operator's filters are optional: only a plan made for those that are given has them
    # in the index, where a kept one reads all rows in front of what is asked for.
    + " -c plan_cache_mode=force_custom_plan"
)
"""For a connection that walks a long table page by page for an operator."""

CONNECT_OPTIONS: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    # A vanished server (no FIN) is noticed in about ten seconds instead of two hours.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
STATEMENT_TIMEOUT_S: Final = 60.0
"""What the README gives the role of a pooler, too. Lower, and a sweep's page on a slow disk is
cut off; higher, and a statement without its index holds its locks for longer."""
QUESTION_S: Final = 5.0
"""For asking a server whether it is still at work. Lower, and a busy one gives no answer; higher,
and whoever waits behind a hung proxy waits for that, too."""
CHECKOUT_TIMEOUT_S: Final = 10.0
"""Longer waits hide an exhausted pool; shorter ones fail in a burst that would pass."""


class Connection(silence.Bounded, standbys.Listening, psycopg.Connection[sql.Row]):
    """A connection of ours: remembers which jobs its transaction wants awake."""

    _hints: set[str] | None = None

    @property
    def hints(self) -> set[str]:
        """Dedupe keys to pull forward once this transaction has committed; "" just wakes."""
        if self._hints is None:
            self._hints = set()
        return self._hints


def connect(
    url: str,
    *,
    application: str,
    lock_timeout: float = 15.0,
    statement_timeout: float = STATEMENT_TIMEOUT_S,
    plans: str = "",
) -> Connection:
    """One dedicated autocommit connection; timeouts in seconds. `plans`: CLAIM_PLANS,
    RUN_PLANS or WALK_PLANS, for one that runs those and little else. Raises Storage, and
    Configuration for a way that livemode doesn't go."""
    arguments = _arguments(url, application, lock_timeout, statement_timeout)
    if "options" in arguments:
        arguments["options"] += plans
    try:
        connection = _connect(url, arguments)
    except psycopg.Error as error:
        raise Storage(way.obstacle(error)) from None
    _bound(url, statement_timeout, connection)
    return connection


def _connect(url: str, arguments: dict[str, Any]) -> Connection:
    way.look_ahead(url)
    connection = Connection.connect(url, **arguments)
    way.look_back(url, connection)
    return connection


def _bound(url: str, statement_timeout: float, connection: Connection) -> None:
    """Have `connection` hang up on a server that says nothing for longer than it may."""
    # A pooler's sessions have their role's limit, whatever we asked for.
    limit = STATEMENT_TIMEOUT_S if isinstance(url, Pooled) else statement_timeout
    within = limit + silence.MARGIN_S
    connection.answer_within = within
    place = {name: getattr(connection.info, name) for name in ("host", "hostaddr", "port")}
    connection.asked = functools.partial(_asked, url, place, within)


def _asked(url: str, place: dict[str, Any], within: float, pid: int) -> silence.Told:
    """What the server at `place` says of its backend `pid`, which may take `within` seconds for
    an answer. Another connection is asked, that lives no longer than this."""
    # The same server, of several that the URL may name: elsewhere the number is another's.
    arguments = {**_arguments(url, "vpay ask", QUESTION_S, QUESTION_S), **place}
    if "options" in arguments:
        # A login that becomes another role sees its own sessions as itself only.
        arguments["options"] += " -c role=none"
    try:
        with closing(_connect(url, arguments)) as connection:
            connection.answer_within = QUESTION_S
            if isinstance(url, Pooled):
                return silence.old_work(connection, within)
            return silence.at_work(connection, pid)
    except psycopg.errors.ConnectionTimeout:
        return silence.Told.NOBODY
    except (psycopg.Error, VpayError):
        return silence.Told.UNKNOWN


class HintSink(Protocol):
    """Where a committed transaction's hints go (hints.py; none: the poll finds the work)."""

    def add(self, keys: set[str]) -> None: ...

    def close(self) -> None: ...


class Database:
    """A pool made on first use – so after the fork – and the units of work over it."""

    def __init__(
        self,
        url: str,
        *,
        size: int = 20,
        application: str = "vpay",
        hints: HintSink | None = None,
        keys: KeysTable = KeysTable(),  # noqa: B008 - frozen
        windows: WindowsTable = WindowsTable(),  # noqa: B008 - frozen
        livemode: bool = False,
    ) -> None:
        self.url = url
        self.keys = keys
        """What payers' numbers are stored under."""
        self.windows = windows
        """The deadlines that writers to this database keep."""
        self.livemode = livemode
        """Whether the settings' rails move real money."""
        self.application = application
        self._size = size
        self._pool: ConnectionPool[Connection] | None = None
        self._pid = 0
        self._lock = threading.Lock()
        self._hints = hints

    def __repr__(self) -> str:
        return f"Database({self.application})"  # the URL may hold a password

    @contextmanager
    def connection(self, *, patience: float = CHECKOUT_TIMEOUT_S) -> Iterator[Connection]:
        """An autocommit connection of the pool: for single statements. Waits for one at most
        `patience` seconds, and never longer than CHECKOUT_TIMEOUT_S. Raises Storage, and
        Configuration for a way that livemode doesn't go."""
        pool = self._opened()
        try:
            # Not 0: that would raise even with connections free.
            connection = pool.getconn(timeout=max(0.001, min(patience, CHECKOUT_TIMEOUT_S)))
        except (PoolTimeout, psycopg.Error) as error:
            raise Storage(f"no connection to Postgres: {describe(error)}") from None
        try:
            yield connection
        finally:
            pool.putconn(connection)

    @contextmanager
    def transaction(self, *, patience: float = CHECKOUT_TIMEOUT_S) -> Iterator[Connection]:
        """A unit of work. Raises AmbiguousCommit when the COMMIT's answer was lost, or its
        standby was not waited for."""
        with self.connection(patience=patience) as connection:
            connection.hints.clear()
            with unit_of_work(connection):
                yield connection
            hints = set(connection.hints)
        if hints and self._hints is not None:
            self._hints.add(hints)

    def close(self) -> None:
        """Give the connections back. A closed Database opens again on its next use."""
        with self._lock:
            pool, self._pool = self._pool, None
        if self._hints is not None:
            self._hints.close()
        if pool is not None and self._pid == os.getpid():
            pool.close()

    def _opened(self) -> ConnectionPool[Connection]:
        with self._lock:
            if self._pool is not None and self._pid != os.getpid():
                # A socket shared by two processes mixes their answers up.
                raise Internal("a database pool was made before the fork: make it after")
            if self._pool is None:
                way.look_ahead(self.url)
                self._pid = os.getpid()
                self._pool = ConnectionPool(
                    self.url,
                    connection_class=Connection,
                    kwargs=_arguments(self.url, self.application, 15.0, STATEMENT_TIMEOUT_S),
                    min_size=0,
                    max_size=self._size,
                    max_idle=60,
                    # As long as anybody waits: a pool that gave up connecting earlier would
                    # not serve those who wait when Postgres is back.
                    reconnect_timeout=CHECKOUT_TIMEOUT_S + 5,
                    check=_still_there,
                    configure=functools.partial(_configured, self.url),
                    open=True,
                )
            return self._pool


@contextmanager
def unit_of_work(connection: Connection) -> Iterator[Connection]:
    """BEGIN; the block; COMMIT. See the module for the endings."""
    try:
        connection.execute("BEGIN")
    except psycopg.Error as error:
        raise sql.classified(error, "BEGIN") from error
    try:
        yield connection
    except Abandon:
        _roll_back(connection)
        return
    except BaseException:
        _roll_back(connection)
        raise
    if connection.info.transaction_status == TransactionStatus.IDLE:
        # COMMIT would only warn, and what was written before is in or gone already.
        raise Internal("a transaction was ended inside its unit of work: leave that to the block")
    if connection.info.transaction_status == TransactionStatus.INERROR:
        _roll_back(connection)
        raise Internal(
            "an SQL error was swallowed inside a unit of work: COMMIT would silently roll back"
        )
    try:
        with standbys.waited_for(connection, "COMMIT"):
            connection.execute("COMMIT")
    except psycopg.Error as error:
        raise sql.classified(error, "COMMIT", ambiguous=sql.broken(connection)) from error


def _roll_back(connection: Connection) -> None:
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error as error:
        # The server rolls back by itself when the connection is gone.
        say(
            Severity.WARN,
            "a rollback could not be sent; the server does it by itself",
            action="rollback_unsent",
            error=describe(error),
        )
        with suppress(psycopg.Error):
            connection.close()


def notified(connection: Connection, *, timeout: float) -> bool:
    """Wait up to `timeout` seconds for a notification; whether one came. Raises Storage."""
    try:
        # The generator holds the connection's lock until it ends: it is read to its end.
        return bool(list(connection.notifies(timeout=timeout, stop_after=1)))
    except psycopg.Error as error:
        raise sql.classified(error, "listen") from error


def usable(connection: Connection | None) -> TypeGuard[Connection]:
    """Whether an idle connection can be used. One whose server has hung up meanwhile has a
    readable socket though nothing was asked; looking costs no round trip."""
    if connection is None or sql.broken(connection):
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    if poll.poll(0):
        connection.close()
        return False
    return True


def _configured(url: str, connection: Connection) -> None:
    way.look_back(url, connection)
    _bound(url, STATEMENT_TIMEOUT_S, connection)


def _still_there(connection: Connection) -> None:
    if not usable(connection):
        raise psycopg.OperationalError("the server closed this idle connection")


def _arguments(
    url: str, application: str, lock_timeout: float, statement_timeout: float
) -> dict[str, Any]:
    arguments = {"autocommit": True, "application_name": application, **CONNECT_OPTIONS}
    if isinstance(url, Verified):
        # Whoever has a Kerberos ticket would get its encryption instead of the TLS asked for.
        arguments["gssencmode"] = "disable"
    if isinstance(url, Pooled):
        # The next statement may run in another session: one that knows no statement prepared
        # here. And a pooler refuses a client that asks for options; the role has them instead.
        return {**arguments, "prepare_threshold": None}
    options = (
        f"{SESSION_OPTIONS} -c lock_timeout={int(lock_timeout * 1000)}ms"
        f" -c statement_timeout={int(statement_timeout * 1000)}ms"
    )
    return {**arguments, "options": options}
