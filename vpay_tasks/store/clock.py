"""The only clock whose word counts."""

from __future__ import annotations

from datetime import UTC, datetime

from vpay_tasks.store import sql

SQL = sql.load(__name__)


def now(connection: sql.Connection) -> datetime:
    """The database's clock, aware, in UTC whatever the session's time zone is."""
    ((naive,),) = sql.run(connection, SQL["now"])
    assert isinstance(naive, datetime)
    return naive.replace(tzinfo=UTC)
