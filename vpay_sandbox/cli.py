"""`vpay-sandbox demo` and `vpay-sandbox up`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from vpay_sandbox.demo import PAYMENTS, SABOTAGES, Wish, demo, up

# sysexits: the command was used wrongly.
USAGE = 64
# Enough to hold every outcome many times; more is what a benchmark is for.
MOST_PAYMENTS = 1_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run one `vpay-sandbox` command. Returns the exit status."""
    arguments = _parser().parse_args(argv)
    # What is set up for somebody's real database and settings must not reach a sandbox.
    for name in list(os.environ):
        if name.startswith(("PG", "VPAY_")):
            del os.environ[name]
    if arguments.command == "up":
        return up()
    return demo(
        Wish(
            payments=arguments.payments,
            seed=arguments.seed,
            quick=arguments.quick,
            keep=arguments.keep,
            sabotage=arguments.sabotage,
        )
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"error: {message}\n")


def _payments(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_PAYMENTS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {MOST_PAYMENTS}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="vpay-sandbox",
        description="Real Postgres, Valkey, dispatcher and workers, with a stub rail and stub"
        " merchants. Nothing needs to be installed or configured, and nothing is left behind.",
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    about = "make payments, watch them settle, and compare three journals"
    command = commands.add_parser(
        "demo",
        help=about,
        description=f"{about[0].upper()}{about[1:]}: the database's, the rail's, the receiver's."
        " The last line of output is one JSON object; exit status 0 means that they agree.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="sabotages, each of which must end with exit status 1:\n"
        + "\n".join(f"  {name:14}{what}" for name, what in SABOTAGES.items()),
    )
    command.add_argument(
        "--payments",
        type=_payments,
        default=PAYMENTS,
        metavar="N",
        help=f"how many (default: {PAYMENTS}, each scenario at least once)",
    )
    command.add_argument(
        "--seed", type=int, default=1, metavar="N", help="decides their order and their amounts"
    )
    command.add_argument(
        "--quick", action="store_true", help="without the payments that outlast the horizon"
    )
    command.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    command.add_argument(
        "--sabotage", choices=[*SABOTAGES], metavar="NAME", help="break something on purpose"
    )
    about = "start everything and leave it running until Ctrl-C, without payments"
    commands.add_parser("up", help=about, description=f"{about[0].upper()}{about[1:]}.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
