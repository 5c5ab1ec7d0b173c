"""Whether the system is in good health, beside its work: who dispatches, who holds vacuum
up, leases that nobody reaps, money in doubt. Read at every scrape, so each is cheap."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from vpay_tasks.store import inbox, sql
from vpay_tasks.store.inbox import Waiting

SQL = sql.load(__name__)

CAP: Final = 1_000
"""Rows counted. Lower: "at least" is said early; higher: each scrape reads more."""

SILENCE_S: Final = 15.0
"""Lower: a dispatcher that backs off (5 s at most) or waits for a lock counts as stuck;
higher: one that is, is found later."""


AWAITS_STANDBY: Final = "waits for a standby"
"""The state of a holder whose COMMIT waits for its synchronous standby."""


@dataclass(frozen=True)
class Holder:
    """Something that keeps dead rows from being removed: a `session`, a `prepared`
    transaction, a replication `slot`. `seconds` is None where it can't be known."""

    holder: str
    pid: int | None
    name: str
    state: str | None
    seconds: float | None
    transactions: int


@dataclass(frozen=True)
class Vitals:
    """One look. `live_dispatchers` are those of `dispatchers` that asked something lately;
    `vacuum_age` is seconds, None before the first vacuum."""

    dispatchers: int = 0
    live_dispatchers: int = 0
    horizon: tuple[Holder, ...] = ()
    dead_rows: int = 0
    vacuum_age: float | None = None
    overdue: dict[str, int] = field(default_factory=dict)
    unresolved: int = 0
    contradicted: int = 0
    inbox: Waiting = field(default_factory=Waiting)

    def oldest(self) -> float:
        """Seconds of the oldest transaction that holds vacuum up; 0 for none."""
        return max((one.seconds or 0.0 for one in self.horizon), default=0.0)


def look(connection: sql.Connection) -> Vitals:
    """Read them all. Raises Storage."""
    connected, live = dispatchers(connection)
    dead_rows, vacuum_age = jobs_table(connection)
    unresolved, contradicted = charges_in_doubt(connection)
    return Vitals(
        dispatchers=connected,
        live_dispatchers=live,
        horizon=tuple(horizon(connection)),
        dead_rows=dead_rows,
        vacuum_age=vacuum_age,
        overdue=overdue_leases(connection),
        unresolved=unresolved,
        contradicted=contradicted,
        inbox=inbox.waiting(connection, cap=CAP),
    )


def dispatchers(connection: sql.Connection, *, silence: float = SILENCE_S) -> tuple[int, int]:
    """Dispatchers with a session, and those of them that asked something within `silence`."""
    ((connected, live),) = sql.run(connection, SQL["dispatchers"], {"silence": silence})
    return connected, live


def horizon(connection: sql.Connection) -> list[Holder]:
    """The oldest holders of each sort, at most ten of a sort."""
    return [Holder(*row) for row in sql.run(connection, SQL["horizon"])]


def jobs_table(connection: sql.Connection) -> tuple[int, float | None]:
    """Dead rows of vpay.jobs by the server's estimate, and seconds since its last vacuum."""
    rows = sql.run(connection, SQL["jobs_table"])
    return (rows[0][0], rows[0][1]) if rows else (0, None)


def overdue_leases(connection: sql.Connection) -> dict[str, int]:
    """Leases that ended a while ago and were not reaped, by queue."""
    return dict(sql.run(connection, SQL["overdue_leases"], {"cap": CAP}))


def charges_in_doubt(connection: sql.Connection) -> tuple[int, int]:
    """Charges unresolved, and charges contradicted (spec 2)."""
    ((unresolved, contradicted),) = sql.run(connection, SQL["charges_in_doubt"], {"cap": CAP})
    return unresolved, contradicted


def takes_writes(connection: sql.Connection) -> bool:
    """Whether this session could write; a standby answers questions all the same."""
    ((takes,),) = sql.run(connection, SQL["takes_writes"])
    return bool(takes)
