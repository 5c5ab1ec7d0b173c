"""`vpay-tasks status`."""

from __future__ import annotations

import argparse

from vpay_tasks import config, status
from vpay_tasks.cli.parser import Commands, add_command, add_json, print_json
from vpay_tasks.store import clock, gauges, migrate
from vpay_tasks.store.db import connect


def register(commands: Commands) -> None:
    about = "show queues, workers and parked jobs"
    add_json(add_command(commands, "status", about, _status))


def _status(arguments: argparse.Namespace) -> int:
    settings = config.load()
    url = settings.database_url
    with connect(url, application="vpay-tasks status") as connection:
        migrate.require_current(connection)
        at = clock.now(connection)
        seen = gauges.look(connection)
    if arguments.json:
        print_json(status.as_json(seen, at, settings))
    else:
        print(status.as_text(seen, at, settings))
    return 0
