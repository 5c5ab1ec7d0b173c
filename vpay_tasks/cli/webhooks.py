"""`vpay-tasks webhooks sign|verify`: signatures by hand. Needs no settings and no database."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from vpay_tasks import config
from vpay_tasks.cli.parser import Commands, Parser, add_command, add_group
from vpay_tasks.errors import InvalidRequest
from vpay_tasks.webhooks import SignatureRefused, sign, verify
from vpay_tasks.webhooks.sign import headers, is_event_id

WHERE_FROM = (
    "The secret: --secret, which anybody on this machine can read in the list of processes, or"
    f" --secret-file, or {config.WEBHOOK_SECRET} in the environment. Several are given by"
    " repeating the word. The body comes from the standard input, byte for byte."
)


def register(commands: Commands) -> None:
    group = add_group(commands, "webhooks", "signatures of webhooks by hand")
    signing = add_command(group, "sign", "print the headers of a delivery of this body", _sign)
    _add_secret(signing)
    signing.add_argument("--t", type=int, metavar="T", help="Unix seconds (default: now)")
    signing.add_argument("--id", default="evt_test", help="the event's id (default: evt_test)")
    about = "check a Vpay-Signature; 1 if it is refused, with the reason"
    verifying = add_command(group, "verify", about, _verify)
    _add_secret(verifying)
    verifying.add_argument("--header", required=True, metavar="H", help="t=…,v1=…")
    verifying.add_argument("--now", type=float, metavar="T", help="Unix seconds (default: now)")


def _add_secret(parser: Parser) -> None:
    parser.epilog = WHERE_FROM
    parser.add_argument("--secret", action="append", metavar="S", default=[])
    parser.add_argument("--secret-file", action="append", metavar="FILE", default=[])


def _secrets(arguments: argparse.Namespace) -> list[str]:
    given = [*arguments.secret, *map(_read, arguments.secret_file)]
    found = given or config.webhook_secrets()
    if not found:
        raise InvalidRequest(
            f"no secret: --secret-file, --secret, or {config.WEBHOOK_SECRET} in the environment"
        )
    return found


def _read(file: str) -> str:
    try:
        return Path(file).read_text("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"--secret-file {file}: {type(error).__name__}") from None


def _body() -> bytes:
    if sys.stdin.isatty():
        print("The body, then Ctrl-D (or give it by < FILE):", file=sys.stderr)
    return sys.stdin.buffer.read()


def _sign(arguments: argparse.Namespace) -> int:
    t = int(time.time()) if arguments.t is None else arguments.t
    if not is_event_id(arguments.id):
        raise InvalidRequest("--id: 1 to 64 letters, digits, _ and -")
    secrets = _secrets(arguments)
    signed = headers(_body(), secrets, t, event_id=arguments.id, attempt=1)
    for name, value in signed.items():
        print(f"{name}: {value}")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    secrets = _secrets(arguments)
    sign(b"", secrets, 1)  # one that can check nothing is a wrong call and no verdict
    body = _body()
    try:
        event = verify(body, arguments.header, secrets, now=arguments.now)
    except SignatureRefused as refused:
        print(f"refused: {refused.reason}")
        return 1
    print(f"verified: {event.type} {event.id}")
    return 0
