"""How long a transaction may wait."""

from __future__ import annotations

from vpay_tasks.store import sql

SQL = sql.load(__name__)


def wait_at_most(tx: sql.Connection, seconds: float) -> None:
    """Bound every lock wait and every statement of this transaction; then Storage is raised.
    At least a millisecond: 0 would mean for ever."""
    sql.run(tx, SQL["wait_at_most"], {"milliseconds": str(max(1, int(seconds * 1000)))})
