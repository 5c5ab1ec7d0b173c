"""How commands are declared: their words, their help, what they run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NoReturn, TypeAlias

from vpay_tasks.errors import InvalidRequest

Command = Callable[[argparse.Namespace], int]
"""Does it, prints the answer, returns the exit code. What it raises is told by main()."""


class Parser(argparse.ArgumentParser):
    """argparse with our exit code for a wrong call."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(InvalidRequest.exit, f"error: {message}\n")

    def with_version(self) -> Parser:
        try:
            text = version("vpay-tasks")
        except PackageNotFoundError:
            text = "not installed: run from a source tree"
        self.add_argument("--version", action="version", version=text)
        return self


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - has no other name


LOOKS: Final = "vpay_operator"
CHANGES: Final = "vpay_worker"
MIGRATES: Final = "vpay_owner"
"""The roles of schema/roles.sql that a person needs for a command."""


def add_command(
    commands: Commands, word: str, about: str, run: Command, *, role: str = LOOKS
) -> Parser:
    """Declare `word`, which calls `run`; its own arguments are added to what this returns. `role`
    is named to whoever calls it without the right."""
    parser = commands.add_parser(word, help=about, description=about)
    parser.set_defaults(command=run, role=role)
    return parser


def add_group(commands: Commands, word: str, about: str) -> Commands:
    """Declare `word` as the first of two: `vpay-tasks keys rotate`."""
    parser = commands.add_parser(word, help=about, description=about)
    return parser.add_subparsers(metavar="command", required=True)


def add_json(parser: Parser) -> None:
    """Give a command `--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def print_json(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, indent=2, ensure_ascii=False))
