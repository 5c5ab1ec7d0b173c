"""`vpay-tasks …` for people, and `vpay-dispatch`, the process that hands out work.

Both end with the exit code of the error that stopped them (errors.py): 64 for a wrong
call, 69 when Postgres or the broker is out of reach, 78 for wrong settings.

A group of commands is one module of this package with a function `register(commands)`,
which declares them (parser.py), and one place in GROUPS.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence

from vpay_tasks import config, secrecy, telemetry, wiring
from vpay_tasks.cli import (
    charges,
    deliveries,
    doctor,
    endpoints,
    events,
    inbox,
    keys,
    migrate,
    status,
    webhooks,
)
from vpay_tasks.cli.parser import Command, Parser
from vpay_tasks.errors import InvalidRequest, RoleRefused, VpayError

GROUPS = (migrate, status, doctor, charges, endpoints, webhooks, deliveries, events, inbox, keys)
"""In the order in which `--help` names their commands."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one `vpay-tasks` command. Returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal of another encoding gets a question mark, not a traceback for an answer.
        sys.stdout.reconfigure(errors="replace")
    words = list(sys.argv[1:] if argv is None else argv)
    for place, word in enumerate(words, 1):
        if not _is_text(word):
            # It could be neither looked for nor printed; and it may be a secret.
            print(f"error: word {place} of the command is not UTF-8", file=sys.stderr)
            return InvalidRequest.exit
    arguments = _parser().parse_args(words)
    command: Command = arguments.command
    return _told(lambda: command(arguments), role=arguments.role)


def dispatch(argv: Sequence[str] | None = None) -> int:
    """Run a dispatcher until it is told to stop. Returns the exit code."""
    Parser(
        prog="vpay-dispatch",
        description="Claims due jobs in Postgres and publishes them to the broker.",
        epilog="Settings come from the TOML file that VPAY_CONFIG names (default: ./vpay.toml).",
    ).with_version().parse_args(argv)

    def run() -> int:
        settings = config.load()
        telemetry.log_as_json()
        return wiring.dispatcher(settings, config.settings_path()).run()

    return _told(run)


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(run: Callable[[], int], *, role: str | None = None) -> int:
    """The exit code of `run`, or of the error that it raised, told without a traceback."""
    secrecy.leave_no_core()
    try:
        code = run()
        sys.stdout.flush()
        return code
    except VpayError as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, RoleRefused) and role is not None:
            print(
                f"This command needs the role {role}: name a login of it in VPAY_DATABASE_URL.",
                file=sys.stderr,
            )
        return error.exit
    except BrokenPipeError:
        # Whoever read our output (head, less) has enough; Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _parser() -> Parser:
    parser = Parser(
        prog="vpay-tasks",
        description="Payments-grade distributed tasks: look after the database and the work.",
        epilog="Settings come from the TOML file that VPAY_CONFIG names (default: ./vpay.toml);"
        " VPAY_DATABASE_URL and VPAY_BROKER_URL win over it. Exit codes: 0 done, 64 wrong call,"
        " 69 Postgres or the broker is out of reach, 78 wrong settings, 1 anything else.",
    ).with_version()
    commands = parser.add_subparsers(metavar="command", required=True)
    for group in GROUPS:
        group.register(commands)
    return parser
