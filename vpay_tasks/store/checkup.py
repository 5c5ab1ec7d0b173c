"""What `vpay-tasks doctor` asks beside gauges and vitals. Run by hand, never at a scrape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vpay_tasks.store import sql

SQL = sql.load(__name__)

CAP: Final = 1_000

SILENCE_S: Final = 60.0
"""Our own sessions are ended by the server then: what is older is somebody else's."""


@dataclass(frozen=True)
class Server:
    """The Postgres that was reached, and as whom."""

    version: int
    standby: bool
    role: str
    database: str

    @property
    def major(self) -> int:
        return self.version // 10_000


@dataclass(frozen=True)
class Setting:
    """A setting of the server; `source` in the words of pg_settings: where it was set."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class LoginSetting:
    """What another login's sessions begin with; `here`: in this database alone."""

    role: str
    here: bool
    name: str
    value: str


@dataclass(frozen=True)
class IdleTransaction:
    """A session that is silent inside a transaction; seconds."""

    pid: int
    name: str
    seconds: float


@dataclass(frozen=True)
class CommitsWaiting:
    """Commits that wait for a synchronous standby; `seconds` of the oldest."""

    number: int
    seconds: float


@dataclass(frozen=True)
class ClosedLane:
    """A lane from which nothing is claimed: paused by a person, or its circuit is open."""

    queue: str
    lane: str
    paused: bool


@dataclass(frozen=True)
class Checkup:
    """What a migrated database answered. `given_up`: deliveries of a day by their state."""

    idle: tuple[IdleTransaction, ...] = ()
    commits_waiting: CommitsWaiting | None = None
    missing_singletons: tuple[str, ...] = ()
    closed_lanes: tuple[ClosedLane, ...] = ()
    given_up: dict[str, int] = field(default_factory=dict)
    logins: tuple[LoginSetting, ...] = ()


def look(connection: sql.Connection, *, singletons: Sequence[str]) -> Checkup:
    """Everything at once; `singletons` are the dedupe keys that should stand. Raises Storage."""
    return Checkup(
        idle=tuple(idle_transactions(connection)),
        commits_waiting=commits_waiting(connection),
        missing_singletons=tuple(missing_keys(connection, singletons)),
        closed_lanes=tuple(closed_lanes(connection)),
        given_up=given_up(connection),
        logins=tuple(settings_of_logins(connection)),
    )


def server(connection: sql.Connection) -> Server:
    """Needs no table of ours."""
    ((version, standby, role, database),) = sql.run(connection, SQL["server"])
    return Server(version, standby, role, database)


def risky_settings(connection: sql.Connection) -> list[Setting]:
    """Settings of the server whose values must not be."""
    return [Setting(*row) for row in sql.run(connection, SQL["risky_settings"])]


def settings_of_logins(connection: sql.Connection) -> list[LoginSetting]:
    """Those of other logins whose values must not be."""
    rows = sql.run(connection, SQL["settings_of_logins"], {"cap": CAP})
    return [LoginSetting(*row) for row in rows]


def idle_transactions(
    connection: sql.Connection, *, silence: float = SILENCE_S
) -> list[IdleTransaction]:
    """Those silent for longer than `silence`, the longest first."""
    rows = sql.run(connection, SQL["idle_transactions"], {"silence": silence})
    return [IdleTransaction(*row) for row in rows]


def commits_waiting(connection: sql.Connection) -> CommitsWaiting | None:
    """None where none waits, or this role may not see it."""
    rows = sql.run(connection, SQL["commits_waiting"])
    return CommitsWaiting(*rows[0]) if rows else None


def missing_keys(connection: sql.Connection, keys: Sequence[str]) -> list[str]:
    """Those of `keys` that no job has."""
    rows = sql.run(connection, SQL["missing_keys"], {"keys": list(keys)})
    return [key for (key,) in rows]


def closed_lanes(connection: sql.Connection) -> list[ClosedLane]:
    """Paused ones first."""
    return [ClosedLane(*row) for row in sql.run(connection, SQL["closed_lanes"], {"cap": CAP})]


def given_up(connection: sql.Connection) -> dict[str, int]:
    """Deliveries of the last day that will not be tried again, by state."""
    return dict(sql.run(connection, SQL["given_up"]))
