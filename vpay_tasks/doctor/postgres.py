"""Findings about the Postgres itself: its settings, and what holds its vacuum up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from vpay_tasks.doctor.facts import Facts, Work
from vpay_tasks.doctor.finding import Finding, identifier, listed, literal, many, named
from vpay_tasks.errors import Severity, sanitise
from vpay_tasks.status import human
from vpay_tasks.store import vitals
from vpay_tasks.store.checkup import LoginSetting, Server
from vpay_tasks.store.vitals import Holder

OLDEST_PG: Final = 14
NEWEST_PG: Final = 18

HELD_S: Final = 300.0
"""Age of a transaction that holds vacuum up. Lower: backups and migrations are findings;
higher: the jobs table has grown by millions of dead rows before anybody looks."""

HELD_TRANSACTIONS: Final = 1_000_000
"""The same where seconds can't be known (replication slots, other roles' sessions)."""

DEAD_ROWS: Final = 10_000
VACUUM_S: Final = 600.0
"""The table asks for vacuum at 1,000 dead rows and the server looks every minute: ten times
both is not a matter of the moment."""


AWAITED_S: Final = 5.0
"""Age of a commit that waits for a standby. Lower: a slow one is a finding; higher: payments
stand still, and the doctor calls it healthy."""


POOLED: Final = {
    "client_min_messages": "notice",
    "jit": "off",
    "lock_timeout": "'15s'",
    "statement_timeout": "'60s'",
    "idle_in_transaction_session_timeout": "'60s'",
}
"""What a role must bring where no session can ask for it (store/db.py asks elsewhere)."""

FORGETS: Final = {
    "off": "a crash forgets payments that were answered",
    "local": "a failover forgets payments that were answered",
}
"""By the value of synchronous_commit."""


def settings_of(facts: Facts, server: Server) -> Iterator[Finding]:
    if server.standby:
        yield Finding(
            "postgres_is_standby",
            Severity.PAGE,
            "This Postgres is a standby: nothing can be written.",
            "settings: add target_session_attrs=read-write to database.url",
        )
    if not OLDEST_PG <= server.major <= NEWEST_PG:
        yield Finding(
            "postgres_unsupported",
            Severity.ERROR if server.major < OLDEST_PG else Severity.WARN,
            f"Postgres {server.major} is not supported: {OLDEST_PG} to {NEWEST_PG} are tested.",
            f"pg_upgrade, to {OLDEST_PG} at least" if server.major < OLDEST_PG else "make test",
        )
    if facts.pooled and facts.work is not None and (unset := facts.work.gauges.unset):
        name = unset[0]
        yield Finding(
            "role_lacks_settings",
            Severity.WARN,
            f"Pooled sessions of {server.role} lack {listed(unset)}.",
            f"ALTER ROLE {identifier(server.role)} SET {name} = {POOLED.get(name, 'DEFAULT')};",
        )
    risks = {
        "fsync": (Severity.PAGE, "a power cut destroys the database"),
        "full_page_writes": (Severity.PAGE, "a power cut destroys pages"),
        "synchronous_commit": (Severity.ERROR, FORGETS["off"]),
        "autovacuum": (Severity.ERROR, "dead rows are never removed, and claims slow down"),
    }
    for setting in facts.risky:
        severity, why = risks[setting.name]
        if setting.name == "synchronous_commit":
            why = FORGETS[setting.value]
        yield Finding(
            f"{setting.name}_{setting.value}",
            severity,
            f"{setting.name} is {setting.value}, set by {setting.source}: {why}.",
            _set_on(setting.name, setting.source, server.role, server.database),
        )
    if facts.work is not None:
        yield from _of_logins(facts.work.checkup.logins, server, pooled=facts.pooled)


def _of_logins(
    settings: Iterable[LoginSetting], server: Server, *, pooled: bool
) -> Iterator[Finding]:
    """What the processes' own logins bring along; the settings above are the doctor's."""
    for one in settings:
        source = "database user" if one.here else "user"
        remedy = _set_on(one.name, source, one.role, server.database)
        if one.name == "synchronous_commit":
            yield Finding(
                f"{one.name}_{one.value}",
                Severity.ERROR,
                f"{one.name} is {one.value} for the login {sanitise(one.role)}:"
                f" {FORGETS[one.value]}. Its sessions keep it until they end.",
                remedy,
            )
        # Where a session can ask, ours ask for these messages, whatever their role has.
        elif pooled:
            yield Finding(
                "role_lacks_settings",
                Severity.WARN,
                f"{one.name} is {one.value} for the login {sanitise(one.role)}: behind the pooler"
                " a commit that its standby does not have passes for a good one.",
                remedy,
            )


def _set_on(name: str, source: str, role: str, database: str) -> str:
    role, database = identifier(role), identifier(database)
    match source:
        case "global":
            return f"ALTER ROLE ALL RESET {name};"
        case "database":
            return f"ALTER DATABASE {database} RESET {name};"
        case "user":
            return f"ALTER ROLE {role} RESET {name};"
        case "database user":
            return f"ALTER ROLE {role} IN DATABASE {database} RESET {name};"
        case "client":
            return f"settings: take {name} out of database.url"
        case "command line":
            return f"restart Postgres without {name} on its command line"
        case _:
            return f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"


def held_up(work: Work, server: Server | None) -> Iterator[Finding]:
    held = [one for one in work.vitals.horizon if _holds(one)]
    for one in held:
        yield _holder(one)
    known = {one.pid for one in held}
    for idle in work.checkup.idle:
        if idle.pid not in known:
            yield Finding(
                "transaction_idle",
                Severity.WARN,
                f"{named(idle.name, idle.pid)} is idle in a transaction for"
                f" {human(idle.seconds)}: it may hold locks.",
                f"SELECT pg_terminate_backend({idle.pid});",
            )
    # Server processes without a session have no state either, but no name.
    if server is not None and any(
        one.holder == "session" and one.name and one.state is None for one in work.vitals.horizon
    ):
        yield Finding(
            "sessions_hidden",
            Severity.WARN,
            f"{server.role} may not see how old other roles' transactions are.",
            f"GRANT pg_read_all_stats TO {identifier(server.role)};",
        )
    age = work.vitals.vacuum_age
    if work.vitals.dead_rows > DEAD_ROWS and (age is None or age > VACUUM_S):
        since = "never" if age is None else f"{human(age)} ago"
        yield Finding(
            "vacuum_behind",
            Severity.WARN,
            f"vpay.jobs has {work.vitals.dead_rows} dead rows; its last vacuum was {since}.",
            "VACUUM vpay.jobs;",
        )


def standbys(work: Work) -> Iterator[Finding]:
    waiting = work.checkup.commits_waiting
    if waiting is not None and waiting.seconds > AWAITED_S:
        yield Finding(
            "standby_awaited",
            Severity.PAGE,
            f"{many(waiting.number, 'commit waits', 'commits wait')} for a synchronous standby,"
            f" the oldest for {human(waiting.seconds)}: nothing is written. Start the standby."
            " Cancel or end no session: what it wrote would stand on this server alone. Without"
            " a standby writes go on by this, and a failover forgets them:",
            "ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf();",
        )


def _holds(one: Holder) -> bool:
    if one.state == vitals.AWAITS_STANDBY:
        return False  # told by what it waits for; to end it is the wrong remedy
    return (one.seconds or 0.0) > HELD_S or one.transactions > HELD_TRANSACTIONS


def _holder(one: Holder) -> Finding:
    age = f"{one.transactions} transactions" if one.seconds is None else human(one.seconds)
    match one.holder:
        case "prepared":
            who = f"The prepared transaction {sanitise(one.name)}"
            remedy = f"ROLLBACK PREPARED {literal(one.name)};"
        case "slot" if one.pid is None:
            who = f"The unused replication slot {sanitise(one.name)}"
            remedy = f"SELECT pg_drop_replication_slot({literal(one.name)});"
        case _:
            who = named(one.name, one.pid) + (f", {one.state}," if one.state else "")
            remedy = f"SELECT pg_terminate_backend({one.pid});"
    return Finding(
        "horizon_held",
        Severity.WARN if (one.seconds or 0.0) <= 12 * HELD_S else Severity.ERROR,
        f"{who} has kept dead rows from being removed for {age}.",
        remedy,
    )
