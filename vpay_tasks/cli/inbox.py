"""`vpay-tasks inbox list|show|retry|replay`: what vendors told us, and what became of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from vpay_tasks.cli.asking import opened, plain, utc
from vpay_tasks.cli.parser import (
    CHANGES,
    Commands,
    Parser,
    add_command,
    add_group,
    add_json,
    print_json,
)
from vpay_tasks.core import kinds
from vpay_tasks.errors import InvalidRequest, NotFound, sanitise
from vpay_tasks.inbox.arm import rearm
from vpay_tasks.status import table
from vpay_tasks.store import inbox, jobs
from vpay_tasks.store.db import Connection, Database
from vpay_tasks.store.inbox import STATES, Listed, State

PAGE: Final = 500
"""Rows looked up at once; each is then armed by itself, so that nothing is held for long."""
RETRIED: Final[tuple[State, ...]] = ("accepted", "retrying", "dead")


def register(commands: Commands) -> None:
    group = add_group(commands, "inbox", "webhooks in: list, look at one, grant again")
    listed = add_command(group, "list", "the newest events", _list)
    _add_filters(listed, STATES)
    listed.add_argument("--limit", type=int, default=50, help="at most so many (50)")
    add_json(listed)
    shown = add_command(group, "show", "one event, whatever it came to", _show)
    shown.add_argument("id", type=int)
    shown.add_argument(
        "--body", action="store_true", help="its bytes as they came, which may name a payer"
    )
    add_json(shown)
    about = "have events granted now, from the ladder's beginning; without ids, the dead"
    retried = add_command(group, "retry", about, _retry, role=CHANGES)
    about = "have events granted again, also what is done or ignored: by id, or by --state"
    again = add_command(group, "replay", about, _replay, role=CHANGES)
    for parser, states in ((retried, RETRIED), (again, STATES)):
        parser.add_argument("ids", nargs="*", type=int, metavar="id")
        _add_filters(parser, states)
        parser.add_argument("--dry-run", action="store_true", help="count, change nothing")


def _add_filters(parser: Parser, states: tuple[State, ...]) -> None:
    parser.add_argument("--vendor")
    parser.add_argument("--state", choices=states)
    parser.add_argument("--type", help="exactly this type")
    parser.add_argument("--reference", help="what it is about")
    parser.add_argument("--event", metavar="ID", help="the vendor's id of the event")


def _page(
    connection: Connection, arguments: argparse.Namespace, *, limit: int, before: int | None = None
) -> list[Listed]:
    return inbox.page(
        connection,
        vendor=arguments.vendor,
        state=arguments.state,
        type=arguments.type,
        reference=arguments.reference,
        event_id=arguments.event,
        before=before,
        limit=limit,
    )


def _list(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.limit <= 10_000:
        raise InvalidRequest(f"--limit {arguments.limit}: 1 to 10000")
    with opened("inbox list") as (_, db), db.connection() as connection:
        lines = _page(connection, arguments, limit=arguments.limit)
    if arguments.json:
        print_json({"events": [plain(asdict(line)) for line in lines]})
        return 0
    if not lines:
        print("No event.")
        return 0
    rows = [
        [
            str(line.id),
            _from(line),
            _cut(line.type, 32) or "–",
            _cut(_shown(line.reference), 36),
            _cut(line.event_id, 36),
            _cut(_state(line), 36),
            str(line.attempts),
            str(line.deliveries),
            utc(line.received_at),
        ]
        for line in lines
    ]
    head = ["Id", "From", "Type", "About", "Event", "State", "Failed", "Deliveries", "Received"]
    print(table(head, rows, left=6))
    if len(lines) == arguments.limit:
        print(f"(the newest {arguments.limit}; --limit shows more)")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with opened("inbox show") as (_, db), db.connection() as connection:
        lines = inbox.page(connection, row_id=arguments.id)
        if not lines:
            raise NotFound(f"no event {arguments.id}: `vpay-tasks inbox list` has them")
        job = jobs.find_by_key(connection, kinds.inbox_key(arguments.id))
        raw = inbox.body(connection, arguments.id) if arguments.body else None
    (line,) = lines
    if raw is not None:
        sys.stdout.buffer.write(raw)
    elif arguments.json:
        print_json({**plain(asdict(line)), "job": job})
    else:
        print(_facts(line, job))
    return 0


def _facts(line: Listed, job: int | None) -> str:
    next_at = f", next attempt {utc(line.next_attempt_at)}" if line.next_attempt_at else ""
    ended = f" since {utc(line.ended_at)}" if line.ended_at else ""
    other = f", {line.conflicts} of them with another body" if line.conflicts else ""
    return "\n".join(
        [
            f"Event {line.id} from {_from(line)}: {line.event_id}",
            f"  type        {line.type or '–'}",
            f"  about       {_shown(line.reference)}",
            f"  state       {_state(line)}{ended}{next_at}",
            f"  failed      {line.attempts} attempts",
            f"  last error  {line.last_error or '–'}",
            f"  received    {utc(line.received_at)}, verified by {line.verified_by}",
            f"  delivered   {line.deliveries} times, last {utc(line.delivered_at)}{other}",
            f"  job         {job or 'none'}",
        ]
    )


def _retry(arguments: argparse.Namespace) -> int:
    if not arguments.ids and arguments.state is None:
        arguments.state = "dead"
    return _armed(arguments, RETRIED)


def _replay(arguments: argparse.Namespace) -> int:
    if not arguments.ids and arguments.state is None:
        raise InvalidRequest("name ids, or the --state of those that are meant")
    return _armed(arguments, STATES)


def _armed(arguments: argparse.Namespace, states: tuple[State, ...]) -> int:
    """Arm them one by one; 1 if one that was named could not be."""
    filters = (arguments.vendor, arguments.type, arguments.reference, arguments.event)
    if arguments.ids and (arguments.state is not None or any(f is not None for f in filters)):
        raise InvalidRequest("ids or filters, not both")
    wanted = (arguments.state,) if arguments.state is not None else states
    with opened("inbox retry") as (_, db):
        missed = []
        armed = 0
        for row_id in _ids(db, arguments):
            if arguments.dry_run:
                # Filters have found what is meant; an id may be of anything.
                why = _why_not(db, row_id, wanted) if arguments.ids else None
            elif _rearmed(db, row_id, wanted):
                why = None
            else:
                why = _why_not(db, row_id, wanted) or f"event {row_id} moved meanwhile: try again"
            armed += why is None
            if why is not None and arguments.ids:
                missed.append(why)
    print(f"{_events(armed)} {'would' if arguments.dry_run else 'will'} be granted.")
    for why in missed:
        print(why, file=sys.stderr)
    return 1 if missed else 0


def _rearmed(db: Database, row_id: int, wanted: tuple[State, ...]) -> bool:
    with db.transaction() as tx:
        return rearm(tx, row_id, wanted)


def _why_not(db: Database, row_id: int, wanted: tuple[State, ...]) -> str | None:
    """Why an event can't be armed; None if it can."""
    with db.connection() as connection:
        lines = inbox.page(connection, row_id=row_id)
        if not lines or lines[0].state not in wanted:
            return f"no event {row_id} is {', '.join(wanted)}"
        if inbox.body(connection, row_id):
            return None
    return (
        f"event {row_id} has no body: bodies of the dead go after 90 days, and come back when"
        " their vendor sends them again"
    )


def _ids(db: Database, arguments: argparse.Namespace) -> Iterator[int]:
    """Those named, or a page of those that fit after the other, the newest first."""
    if arguments.ids:
        yield from dict.fromkeys(arguments.ids)
        return
    before: int | None = None
    while True:
        with db.connection() as connection:
            lines = _page(connection, arguments, limit=PAGE, before=before)
        yield from (line.id for line in lines)
        if len(lines) < PAGE:
            return
        before = lines[-1].id


def _events(number: int) -> str:
    return f"{number} event{'' if number == 1 else 's'}"


def _from(line: Listed) -> str:
    return f"{line.vendor}/{line.account}" if line.account else line.vendor


def _state(line: Listed) -> str:
    why = " ".join(filter(None, (line.verdict, line.reason)))
    return f"{line.state} ({why})" if why else line.state


def _cut(text: str, most: int) -> str:
    """For a line of a list: one long cell would push every line off the terminal. `show` and
    `--json` have all of it."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _shown(reference: str | None) -> str:
    """A stranger's text, fit for a terminal."""
    return sanitise(reference, 40) if reference is not None else "–"
