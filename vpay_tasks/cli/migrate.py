"""`vpay-tasks migrate`."""

from __future__ import annotations

import argparse

from vpay_tasks import config
from vpay_tasks.cli.parser import MIGRATES, Commands, add_command
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect


def register(commands: Commands) -> None:
    about = "create or upgrade the tables in Postgres; safe to repeat"
    parser = add_command(commands, "migrate", about, _migrate, role=MIGRATES)
    parser.add_argument("--plan", action="store_true", help="say what would be applied, only")


def _migrate(arguments: argparse.Namespace) -> int:
    url = config.load().database_url
    with connect(url, application="vpay-tasks migrate") as connection:
        if arguments.plan:
            return _plan(migrate.pending(connection))
        applied = migrate.apply(connection)
    for migration in applied:
        print(f"applied {migration.name}")
    number = len(applied)
    done = f"{number} file{'s' if number > 1 else ''} applied" if number else "nothing to apply"
    print(f"The database is up to date: {done}.")
    return 0


def _plan(pending: list[migrate.Migration]) -> int:
    for migration in pending:
        print(f"would apply {migration.name}")
    contracting = [migration for migration in pending if migration.contracts]
    if contracting:
        print(
            f"{contracting[0].name} takes away what the release before uses: stop its processes"
            " first, or migrate when the last of them is gone."
        )
    elif pending:
        print("Processes of the release before run on: nothing that they use is taken away.")
    else:
        print("The database is up to date: nothing to apply.")
    return 0
