"""Connections that fall silent: nobody ends them, and no answer comes.

A proxy or pooler that hangs goes on acknowledging bytes, so neither keepalive nor
tcp_user_timeout sees anything. The server ends each statement by its own limit; a client that
has heard nothing for longer than that hangs up, unless the server says that it is still at it:
a COMMIT waits for its synchronous standby without any limit. To hang up on that one would help
nobody: its session stays in the server until the standby has come.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from vpay_tasks.errors import Severity
from vpay_tasks.store import sql
from vpay_tasks.telemetry import say

MARGIN_S: Final = 10.0
"""What an answer may take beyond the limit of its statement, and the pause before it is asked
about again. Lower, and a machine or a network that is busy for a moment costs a connection and
leaves its commit in doubt; higher, and a hung proxy stops its users for longer. A transaction
that is left open must be over by then (idle_in_transaction_session_timeout), so that a proxy that
wakes up delivers no late COMMIT."""

QUESTIONS_MAX: Final = 40
"""Questions in a row that nobody answers, although somebody is there: about ten minutes. A pooler
whose sessions all wait for a standby is such a one, and each hang-up leaves one more of them in
the server: fewer, and an outage of the standby eats the server's connections; more, and behind a
pooler that has lost its server everybody waits for longer."""

SQL: Final = sql.load(__name__)

RV = TypeVar("RV")


class Told(Enum):
    """What was learned about a session that says nothing."""

    AT_WORK = "it is at work"
    RESTS = "it is not at work"
    NOBODY = "nobody answers there"
    UNKNOWN = "it can't be asked"


class Bounded(psycopg.Connection[Any]):
    """A connection that waits for an answer as long as the server may take for it."""

    answer_within: float | None = None
    """Seconds without a byte; None: any time."""
    asked: Callable[[int], Told] | None = None
    """About the backend of that number, by another way."""

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        if self.answer_within is not None:
            gen = self._listening(gen, self.answer_within)
        return super().wait(gen, *args, **options)

    def _listening(self, gen: PQGen[RV], within: float) -> PQGen[RV]:
        """`gen`, told to stop when nothing has come for `within` seconds. The library's wait
        resumes it when the socket is ready, and every tenth of a second when it isn't: only
        then is a clock read."""
        deadline: float | None = None
        untold = 0
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    deadline, untold = None, 0
                elif deadline is None:
                    deadline = time.monotonic() + within
                elif time.monotonic() >= deadline:
                    untold = self._look(untold)
                    deadline = time.monotonic() + MARGIN_S
                wanted = gen.send(ready)
        except StopIteration as end:
            rv: RV = end.value
            return rv

    def _look(self, untold: int) -> int:
        """Hang up, unless an answer is here or owed; how many questions in a row, after `untold`
        before, had no answer."""
        if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return 0  # nothing was asked: somebody listens for notifications
        told = Told.NOBODY if self.asked is None else self.asked(self.pgconn.backend_pid)
        match told:
            case Told.AT_WORK:
                return 0
            case Told.UNKNOWN if untold + 1 < QUESTIONS_MAX:
                return untold + 1
            case Told.UNKNOWN | Told.RESTS | Told.NOBODY:
                self._hang_up(told)
                return 0

    def _hang_up(self, told: Told) -> None:
        # Looked at last: the answer may have come during the question, or while this process
        # was stopped and its time went by.
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        if poll.poll(0):
            return
        application = self.info.get_parameters().get("application_name")
        self.pgconn.finish()
        if self.asked is not None:  # a question that has no answer is told by whoever asked it
            say(
                Severity.WARN,
                "a connection to Postgres fell silent and was closed: look at what stands between",
                action="connection_silent",
                application=application,
                reason=told.value,
            )
        raise psycopg.OperationalError("no answer came from Postgres: the connection was closed")


def at_work(connection: sql.Connection, pid: int) -> Told:
    """Whether the backend `pid` is at a statement of its client's. Raises Storage."""
    rows = sql.run(connection, SQL["at_work"], {"pid": pid})
    return _TOLD[rows[0][0] if rows else False]


def old_work(connection: sql.Connection, seconds: float) -> Told:
    """Whether any session of this login is at something that began so long ago, or waits for a
    standby. Raises Storage."""
    ((found,),) = sql.run(connection, SQL["old_work"], {"seconds": seconds})
    return _TOLD[found]


_TOLD: Final = {True: Told.AT_WORK, False: Told.RESTS, None: Told.UNKNOWN}
