"""`vpay-tasks doctor`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from vpay_tasks import config
from vpay_tasks.cli.parser import Commands, add_command, add_json, print_json
from vpay_tasks.doctor import facts, findings, report


def register(commands: Commands) -> None:
    about = "look for what is wrong, the worst first, each with its remedy; 1 if anything is"
    add_json(add_command(commands, "doctor", about, _doctor))


def _doctor(arguments: argparse.Namespace) -> int:
    found = findings.find(facts.gather(config.load()))
    # This machine's clock, for the eye only: Postgres may be what is out of reach.
    at = datetime.now(UTC)
    if arguments.json:
        print_json(report.as_json(found, at))
    else:
        print(report.as_text(found, at))
    return report.exit_code(found)
