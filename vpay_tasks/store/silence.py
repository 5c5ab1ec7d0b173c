"""Connections that fall silent: nobody ends them, and no answer comes.

A proxy or pooler that hangs goes on acknowledging bytes, so neither keepalive nor
tcp_user_timeout sees anything. The server ends each statement by its own limit; a client that
has heard nothing for longer than that hangs up, unless the server says that it is still at it:
a COMMIT waits for its synchronous standby without any limit.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
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
leaves its commit in doubt; higher, and a hung proxy stops its users for longer."""

SQL: Final = sql.load(__name__)

RV = TypeVar("RV")


class Bounded(psycopg.Connection[Any]):
    """A connection that waits for an answer as long as the server may take for it."""

    answer_within: float | None = None
    """Seconds without a byte; None: any time."""
    still_at_work: Callable[[int], bool] | None = None
    """Whether the backend of that number is at our statement, asked on another way."""

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        if self.answer_within is not None:
            gen = self._listening(gen, self.answer_within)
        return super().wait(gen, *args, **options)

    def _listening(self, gen: PQGen[RV], within: float) -> PQGen[RV]:
        """`gen`, told to stop when nothing has come for `within` seconds. The library's wait
        resumes it when the socket is ready, and every tenth of a second when it isn't: only
        then is a clock read."""
        deadline: float | None = None
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    deadline = None
                elif deadline is None:
                    deadline = time.monotonic() + within
                elif time.monotonic() >= deadline:
                    self._hang_up_on_silence()
                    deadline = time.monotonic() + MARGIN_S
                wanted = gen.send(ready)
        except StopIteration as end:
            rv: RV = end.value
            return rv

    def _hang_up_on_silence(self) -> None:
        """Close the connection and raise, unless an answer is here or on its way."""
        if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return  # nothing was asked: somebody listens for notifications
        if self.still_at_work is not None and self.still_at_work(self.pgconn.backend_pid):
            return
        # Looked at last: the answer may have come during the question, or while this process
        # was stopped and its time went by.
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        if poll.poll(0):
            return
        self.pgconn.finish()
        say(
            Severity.WARN,
            "a connection to Postgres fell silent and was closed: look at the proxy or pooler"
            " before it",
            action="connection_silent",
        )
        raise psycopg.OperationalError("no answer came from Postgres: the connection was closed")


def at_work(connection: sql.Connection, pid: int) -> bool:
    """Whether the backend `pid` is at a statement of its client's. Raises Storage."""
    ((found,),) = sql.run(connection, SQL["at_work"], {"pid": pid})
    return bool(found)


def commits_wait(connection: sql.Connection) -> bool:
    """Whether any commit waits for its synchronous standby. Raises Storage."""
    ((found,),) = sql.run(connection, SQL["commits_wait"])
    return bool(found)
