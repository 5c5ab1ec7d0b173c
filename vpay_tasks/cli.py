"""`vpay-tasks …` for people, and `vpay-dispatch`, the process that hands out work.

Both end with the exit code of the error that stopped them (errors.py): 64 for a wrong
call, 69 when Postgres or the broker is out of reach, 78 for wrong settings.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from vpay_tasks import config, status, telemetry, wiring
from vpay_tasks.doctor import facts, findings, report
from vpay_tasks.errors import InvalidRequest, VpayError
from vpay_tasks.store import clock, gauges, migrate
from vpay_tasks.store.db import connect


def main(argv: Sequence[str] | None = None) -> int:
    """Run one `vpay-tasks` command. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    return _told(lambda: command(arguments))


def dispatch(argv: Sequence[str] | None = None) -> int:
    """Run a dispatcher until it is told to stop. Returns the exit code."""
    parser = _Parser(
        prog="vpay-dispatch",
        description="Claims due jobs in Postgres and publishes them to the broker.",
        epilog="Settings come from the TOML file that VPAY_CONFIG names (default: ./vpay.toml).",
    )
    _with_version(parser).parse_args(argv)

    def run() -> int:
        settings = config.load()
        telemetry.log_as_json()
        return wiring.dispatcher(settings, config.settings_path()).run()

    return _told(run)


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


def _status(arguments: argparse.Namespace) -> int:
    settings = config.load()
    url = settings.database.address
    with connect(url, application="vpay-tasks status") as connection:
        migrate.require_current(connection)
        at = clock.now(connection)
        seen = gauges.look(connection)
    if arguments.json:
        text = json.dumps(status.as_json(seen, at, settings), indent=2, ensure_ascii=False)
    else:
        text = status.as_text(seen, at, settings)
    print(text)
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    found = findings.find(facts.gather(config.load()))
    # This machine's clock, for the eye only: Postgres may be what is out of reach.
    at = datetime.now(UTC)
    if arguments.json:
        print(json.dumps(report.as_json(found, at), indent=2, ensure_ascii=False))
    else:
        print(report.as_text(found, at))
    return report.exit_code(found)


def _told(run: Callable[[], int]) -> int:
    """The exit code of `run`, or of the error that it raised, told without a traceback."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except VpayError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit
    except BrokenPipeError:
        # Whoever read our output (head, less) has enough; Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(InvalidRequest.exit, f"error: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(
        prog="vpay-tasks",
        description="Payments-grade distributed tasks: look after the database and the work.",
        epilog="Settings come from the TOML file that VPAY_CONFIG names (default: ./vpay.toml);"
        " VPAY_DATABASE_URL and VPAY_BROKER_URL win over it. Exit codes: 0 done, 64 wrong call,"
        " 69 Postgres or the broker is out of reach, 78 wrong settings, 1 anything else.",
    )
    commands = _with_version(parser).add_subparsers(metavar="command", required=True)
    about = "create or upgrade the tables in Postgres; safe to repeat"
    command = commands.add_parser("migrate", help=about, description=about)
    command.set_defaults(command=_migrate)
    about = "show queues, workers and parked jobs"
    command = commands.add_parser("status", help=about, description=about)
    command.add_argument("--json", action="store_true", help="one JSON object instead of text")
    command.set_defaults(command=_status)
    about = "look for what is wrong, the worst first, each with its remedy; 1 if anything is"
    command = commands.add_parser("doctor", help=about, description=about)
    command.add_argument("--json", action="store_true", help="one JSON object instead of text")
    command.set_defaults(command=_doctor)
    return parser


def _with_version(parser: _Parser) -> _Parser:
    try:
        text = version("vpay-tasks")
    except PackageNotFoundError:
        text = "not installed: run from a source tree"
    parser.add_argument("--version", action="version", version=text)
    return parser
