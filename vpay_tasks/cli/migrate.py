"""`vpay-tasks migrate`."""

from __future__ import annotations

import argparse

from vpay_tasks import config
from vpay_tasks.cli.parser import Commands, add_command
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect


def register(commands: Commands) -> None:
    about = "create or upgrade the tables in Postgres; safe to repeat"
    add_command(commands, "migrate", about, _migrate)


def _migrate(_: argparse.Namespace) -> int:
    url = config.load().database.address
    with connect(url, application="vpay-tasks migrate") as connection:
        applied = migrate.apply(connection)
    for migration in applied:
        print(f"applied {migration.name}")
    number = len(applied)
    done = f"{number} file{'s' if number > 1 else ''} applied" if number else "nothing to apply"
    print(f"The database is up to date: {done}.")
    return 0
