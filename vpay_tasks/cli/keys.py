"""`vpay-tasks keys rotate`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable

from vpay_tasks import config, wiring
from vpay_tasks.cli.parser import CHANGES, Commands, add_command, add_group
from vpay_tasks.errors import Configuration
from vpay_tasks.payments import payer, rotation
from vpay_tasks.payments.rotation import Walk
from vpay_tasks.store import migrate

EVERY = 10_000
"""Rows between two lines of progress: a line a second or so."""


def register(commands: Commands) -> None:
    group = add_group(commands, "keys", "look after the keys that payers' numbers are stored under")
    about = "seal every stored number with the newest key; may be stopped and repeated"
    command = add_command(group, "rotate", about, _rotate, role=CHANGES)
    command.add_argument("--dry-run", action="store_true", help="count and change nothing")


def _rotate(arguments: argparse.Namespace) -> int:
    settings = config.load()
    ring = payer.ring_of(settings.keys)
    if not settings.keys.payer_ref:
        raise Configuration("keys.payer_ref: there is no key to seal with")
    db = wiring.database(settings, application="vpay-tasks keys")
    with contextlib.closing(db):
        with db.connection() as connection:
            migrate.require_current(connection)
        passes = rotation.rotate(db, ring, told=_progress(), dry_run=arguments.dry_run)
    last = passes[-1]
    if arguments.dry_run:
        print(f"{last.older} of {last.looked_at} rows use older keys; nothing was changed.")
    else:
        print(f"{sum(one.renewed for one in passes)} rows were sealed anew with the newest key.")
    if last.unopened:
        more = f" and {last.unopened - len(last.names)} more" * (last.unopened > len(last.names))
        raise Configuration(
            f"keys.payer_ref: no key opens the payers of {last.unopened} charges"
            f" ({', '.join(last.names)}{more}): put the key that they were sealed with at the end"
            " of the ring, and run this again"
        )
    if last.older and not arguments.dry_run:
        raise Configuration(
            f"keys.payer_ref: {last.older} rows were sealed with an older key meanwhile: a process"
            " still runs with the settings of before; restart it, and run this again"
        )
    if not last.older:
        print("0 rows use older keys: the old key may be removed.")
    return 0


def _progress() -> Callable[[Walk], None]:
    said = 0

    def told(walk: Walk) -> None:
        nonlocal said
        if walk.looked_at < said:
            said = 0  # another pass
        if walk.looked_at >= said + EVERY:
            said = walk.looked_at
            print(f"… {walk.looked_at} rows looked at, {walk.renewed} sealed anew", file=sys.stderr)

    return told
