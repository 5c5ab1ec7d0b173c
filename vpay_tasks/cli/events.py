"""`vpay-tasks events list|show|rearm`: what happened, and whether it was fanned out."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Final

from vpay_tasks.cli.asking import instant, opened, plain, types, utc
from vpay_tasks.cli.parser import CHANGES, Commands, add_command, add_group, add_json, print_json
from vpay_tasks.errors import Conflict, InvalidRequest, NotFound
from vpay_tasks.status import table
from vpay_tasks.store import events, listing, replays
from vpay_tasks.store.db import Database
from vpay_tasks.store.listing import EventLine
from vpay_tasks.store.replays import Filter

STATES: Final = ("pending", "done", "failed")
DELIVERIES_SHOWN: Final = 100
"""Of one event: it has one for each endpoint."""


def register(commands: Commands) -> None:
    group = add_group(commands, "events", "what merchants are told: list, look at one, re-arm")
    listed = add_command(group, "list", "the newest events", _list)
    listed.add_argument("--merchant")
    listed.add_argument("--state", choices=STATES, help="of its fan-out")
    listed.add_argument("--type", action="append", help="payment_intent.succeeded, or ….*")
    listed.add_argument("--since", metavar="TIME", help="90min, 36h, 7d, or an instant with zone")
    listed.add_argument("--limit", type=int, default=50, help="at most so many (50)")
    add_json(listed)
    shown = add_command(group, "show", "one event with its deliveries", _show)
    shown.add_argument("id")
    add_json(shown)
    rearmed = add_command(
        group, "rearm", "fan out again an event that was given up", _rearm, role=CHANGES
    )
    rearmed.add_argument("id")


def _list(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.limit <= 10_000:
        raise InvalidRequest(f"--limit {arguments.limit}: 1 to 10000")
    with opened("events list") as (_, db):
        since = instant(arguments.since, db)
        with db.connection() as connection:
            lines = listing.newest(
                connection,
                merchant_id=arguments.merchant,
                state=arguments.state,
                types=types(arguments.type),
                since=since,
                limit=arguments.limit,
            )
    if arguments.json:
        print_json({"events": [plain(asdict(line)) for line in lines]})
    elif not lines:
        print("No event.")
    else:
        rows = [
            [
                line.id,
                line.merchant_id,
                line.type,
                line.object_id,
                line.state + (f" ({line.attempts} failures)" if line.attempts else ""),
                utc(line.created_at),
                str(line.deliveries),
            ]
            for line in lines
        ]
        head = ["Event", "Merchant", "Type", "Object", "Fan-out", "Created", "Deliveries"]
        print(table(head, rows, left=6))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with opened("events show") as (_, db):
        line = _one(db, arguments.id)
        with db.connection() as connection:
            wanted = Filter(event_id=line.id)
            sent = replays.newest(connection, wanted, limit=DELIVERIES_SHOWN)
    if arguments.json:
        print_json({**plain(asdict(line)), "sent": [asdict(one) for one in sent]})
        return 0
    print(
        f"Event {line.id} of {line.merchant_id}\n"
        f"  type     {line.type}, about {line.object_id}\n"
        f"  created  {utc(line.created_at)}, revision {line.body_rev}\n"
        f"  fan-out  {line.state}, {line.attempts} failures"
    )
    if sent:
        head = ["Delivery", "Endpoint", "State", "Attempts"]
        rows = [[one.id, one.endpoint_id, one.state, str(one.attempts)] for one in sent]
        print(f"\n{table(head, rows, left=3)}")
    return 0


def _rearm(arguments: argparse.Namespace) -> int:
    with opened("events rearm") as (_, db):
        with db.transaction() as tx:
            rearmed = events.rearm(tx, arguments.id)
        if not rearmed:
            line = _one(db, arguments.id)
            raise Conflict(f"{line.id} is {line.state}: only a failed one is re-armed")
    print(f"{arguments.id} is pending again.")
    return 0


def _one(db: Database, event_id: str) -> EventLine:
    with db.connection() as connection:
        found = listing.newest(connection, event_id=event_id, limit=1)
    if not found:
        raise NotFound(f"no event {event_id}: `vpay-tasks events list` has them")
    return found[0]
