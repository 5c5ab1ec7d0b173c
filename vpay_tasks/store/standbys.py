"""Commits that a synchronous standby was to have, and may not have.

A COMMIT waits for its standby without any limit, statement_timeout included. Whoever cancels
that wait makes it *succeed*, with a warning: the transaction is on this server's disk, and a
failover to the standby undoes it. To whom acts on commits that is no success.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from vpay_tasks.errors import AmbiguousCommit

WAIT: Final = "SyncRepWaitForLSN"
"""The server's function that waits, and warns. Its words are translated; this is not."""


class _Ear:
    """Apart from the connection: a handler that held it would keep it from being freed."""

    called_off = False

    def hear(self, said: psycopg.errors.Diagnostic) -> None:
        if said.source_function == WAIT:
            self.called_off = True


class Listening(psycopg.Connection[Any]):
    """A connection that hears when the wait of a commit was called off."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ear = _Ear()
        self.add_notice_handler(self.ear.hear)


@contextmanager
def waited_for(connection: psycopg.Connection[Any], what: str) -> Iterator[None]:
    """Around whatever commits; `what` names it. Raises AmbiguousCommit where it returned and
    its standby may not have it. An application's own connection is its own to listen to."""
    if not isinstance(connection, Listening):
        yield
        return
    connection.ear.called_off = False
    yield
    if connection.ear.called_off:
        raise AmbiguousCommit(
            f"{what}: its wait for a synchronous standby was canceled; it is committed on this"
            " server, and a failover may undo it"
        )
