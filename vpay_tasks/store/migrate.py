"""Migrations: the files of `schema/`, in order, each once, each remembered by its SHA-256.

Everything lives in the Postgres schema `vpay`, beside the application's own tables: one
transaction must be able to write both, and names like `events` are taken there.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

import psycopg

from vpay_tasks.errors import Configuration, Internal, Storage
from vpay_tasks.store import sql
from vpay_tasks.store.db import Connection

LOCK_NAME: Final = "vpay migrations"
"""Its hashtext stands in pg_locks.objid, under classid 86 ('V'), while a migration runs."""

_FILE = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_CONTRACT = re.compile(r"^\d{4}_contract_")
"""The name says it, and the name is in the record: a process of an older release, which has
not got the file, must be able to tell."""


@dataclass(frozen=True)
class Migration:
    """One file of schema/."""

    number: int
    name: str
    text: str

    @property
    def contracts(self) -> bool:
        """Whether it takes something away that the release before still uses."""
        return bool(_CONTRACT.match(self.name))

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def available() -> list[Migration]:
    """The files that ship with this version, in order."""
    found = [
        Migration(int(match.group(1)), item.name, item.read_text("utf-8"))
        for item in resources.files("vpay_tasks").joinpath("schema").iterdir()
        if (match := _FILE.match(item.name))
    ]
    found.sort(key=lambda migration: migration.number)
    for place, migration in enumerate(found, 1):
        # Of two with one number only one would ever run, and the record would call both done.
        if migration.number != place:
            raise Internal(f"schema/{migration.name}: its number should be {place:04d}")
    return found


def pending(connection: Connection) -> list[Migration]:
    """What `apply` would run. Raises Configuration for a file that was edited or is missing, and
    in a database that a newer release has contracted."""
    files = available()
    applied = _applied(connection)
    by_number = {migration.number: migration for migration in files}
    for number, (name, digest) in applied.items():
        file = by_number.get(number)
        if file is None:
            if number > max(by_number, default=0):
                if _CONTRACT.match(name):
                    raise Configuration(
                        f"migration {name} of a newer release took away what this version uses:"
                        " upgrade this process"
                    )
                continue  # a newer release added to the schema: ours runs on it
            raise Configuration(f"migration {name} was applied, but its file is missing here")
        if file.digest != digest:
            raise Configuration(
                f"migration {name} was edited after it was applied: restore the file, and"
                " write the change as a new migration"
            )
    return [migration for migration in files if migration.number not in applied]


def apply(connection: Connection) -> list[Migration]:
    """Run what is pending, each file in a transaction of its own. The lock is each
    transaction's, too, so that this works through a transaction pooler; of two that migrate
    at once either may run the next file."""
    done: list[Migration] = []
    try:
        while migration := _apply_next(connection):
            done.append(migration)
    except psycopg.Error as error:
        raise sql.classified(error, "migrate") from error
    return done


def _apply_next(connection: Connection) -> Migration | None:
    with connection.transaction():
        # Building an index takes what it takes; waiting for a lock would make all others wait.
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SET LOCAL lock_timeout = '10s'")
        connection.execute("SELECT pg_advisory_xact_lock(86, hashtext(%s))", (LOCK_NAME,))
        _create_record(connection)
        todo = pending(connection)
        if not todo:
            return None
        connection.execute(todo[0].text.encode())
        connection.execute(
            "INSERT INTO vpay.migrations (number, name, sha256)"
            " VALUES (%(number)s, %(name)s, %(sha256)s)",
            {"number": todo[0].number, "name": todo[0].name, "sha256": todo[0].digest},
        )
        return todo[0]


def require_current(connection: Connection) -> None:
    """Raise Storage when the database lacks a migration that this version needs, or does not
    answer."""
    try:
        missing = pending(connection)
    except psycopg.Error as error:
        raise sql.classified(error, "migrations") from error
    if missing:
        raise Storage(
            f"the database lacks {len(missing)} migration(s), the first is {missing[0].name}:"
            " run `vpay-tasks migrate`"
        )


def _create_record(connection: Connection) -> None:
    # Looked at first: IF NOT EXISTS asks for the right to create also where nothing is to be
    # created, and a role that owns the schema need not have it in the whole database.
    found = connection.execute("SELECT to_regnamespace('vpay'), to_regclass('vpay.migrations')")
    ((schema, record),) = found.fetchall()
    if schema is None:
        connection.execute("CREATE SCHEMA vpay")
    if record is not None:
        return
    connection.execute(
        "CREATE TABLE vpay.migrations ("
        " number integer PRIMARY KEY,"
        " name text NOT NULL,"
        " sha256 text NOT NULL,"
        " applied_at timestamptz NOT NULL DEFAULT now())"
    )


def _applied(connection: Connection) -> dict[int, tuple[str, str]]:
    exists = connection.execute("SELECT to_regclass('vpay.migrations') IS NOT NULL").fetchone()
    if not exists or not exists[0]:
        return {}
    rows = connection.execute("SELECT number, name, sha256 FROM vpay.migrations").fetchall()
    return {number: (name, digest) for number, name, digest in rows}
