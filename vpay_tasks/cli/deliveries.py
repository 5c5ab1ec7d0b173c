"""`vpay-tasks deliveries list|show|replay`: webhooks out, one by one or by the thousand."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Final

from vpay_tasks.cli import asking
from vpay_tasks.cli.asking import instant, opened, plain, types, utc
from vpay_tasks.cli.parser import (
    CHANGES,
    Commands,
    Parser,
    add_command,
    add_group,
    add_json,
    print_json,
)
from vpay_tasks.config import Settings
from vpay_tasks.errors import InvalidRequest, NotFound, VpayError
from vpay_tasks.status import human, table
from vpay_tasks.store import replays
from vpay_tasks.store.db import Database
from vpay_tasks.store.replays import Facts, Filter, Logged, Replayed
from vpay_tasks.webhooks import replay
from vpay_tasks.webhooks.endpoints import Endpoint

STATES: Final = ("pending", "delivered", "exhausted", "gone", "poisoned")
RATE: Final = 100.0
"""Deliveries made due a second unless told otherwise: the workers' own caps protect receivers,
this leaves room for today's events."""
COUNT_PAGE: Final = 1_000


def register(commands: Commands) -> None:
    group = add_group(commands, "deliveries", "webhooks out: list, look at one, send again")
    listed = add_command(group, "list", "the newest deliveries of each endpoint", _list)
    _add_filters(listed)
    listed.add_argument("--limit", type=int, default=50, help="at most so many (50)")
    add_json(listed)
    shown = add_command(group, "show", "one delivery with every attempt", _show)
    shown.add_argument("id")
    add_json(shown)
    again = add_command(
        group,
        "replay",
        "send deliveries again: the same event and bytes, freshly signed, the whole ladder;"
        " without --state, those that were given up",
        _replay,
        role=CHANGES,
    )
    again.add_argument("ids", nargs="*", metavar="id")
    _add_filters(again)
    again.add_argument(
        "--missed-by",
        metavar="MERCHANT/ENDPOINT",
        help="all that it missed since --since: given up, or of before it was there",
    )
    again.add_argument("--dry-run", action="store_true", help="count, change nothing")
    again.add_argument("--rate", type=float, default=RATE, help="so many a second (100)")


def _add_filters(parser: Parser) -> None:
    parser.add_argument("--merchant")
    parser.add_argument("--endpoint")
    parser.add_argument("--event", metavar="ID", help="the event's id")
    parser.add_argument("--type", action="append", help="payment_intent.succeeded, or ….*")
    parser.add_argument("--state", action="append", choices=STATES)
    parser.add_argument("--since", metavar="TIME", help="90min, 36h, 7d, or an instant with zone")


def _filter(arguments: argparse.Namespace, db: Database) -> Filter:
    return Filter(
        merchant_id=arguments.merchant,
        endpoint_id=arguments.endpoint,
        event_id=arguments.event,
        states=tuple(arguments.state) if arguments.state else None,
        types=types(arguments.type),
        since=instant(arguments.since, db),
    )


def _list(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.limit <= 10_000:
        raise InvalidRequest(f"--limit {arguments.limit}: 1 to 10000")
    with opened("deliveries list") as (_, db):
        wanted = _filter(arguments, db)
        with db.connection() as connection:
            lines = replays.newest(connection, wanted, limit=arguments.limit)
    if arguments.json:
        print_json({"deliveries": [asdict(line) for line in lines]})
        return 0
    if not lines:
        print("No delivery.")
        return 0
    rows = [
        [
            line.id,
            f"{line.merchant_id}/{line.endpoint_id}",
            line.type,
            line.event_id,
            line.state + (f" (replay {line.replays})" if line.replays else ""),
            str(line.attempts),
            _status(line.last_status, line.attempts),
            human(line.age),
            human(max(line.wait, 0.0)) if line.wait is not None else "–",
        ]
        for line in lines
    ]
    head = [
        "Delivery",
        "Endpoint",
        "Type",
        "Event",
        "State",
        "Attempts",
        "Status",
        "Age",
        "Next in",
    ]
    print(table(head, rows, left=5))
    if len(lines) == arguments.limit:
        print(f"(the newest {arguments.limit}; --limit shows more)")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with opened("deliveries show") as (_, db), db.connection() as connection:
        found = replays.facts(connection, arguments.id)
        if found is None:
            raise NotFound(f"no delivery {arguments.id}: `vpay-tasks deliveries list` has them")
        log = replays.attempts_of(connection, arguments.id)
    if arguments.json:
        print_json({**plain(asdict(found)), "log": [plain(asdict(one)) for one in log]})
    else:
        print(_shown(found, log))
    return 0


def _shown(found: Facts, log: list[Logged]) -> str:
    ended = f" since {utc(found.ended_at)}" if found.ended_at else ""
    next_at = f", next attempt {utc(found.next_attempt_at)}" if found.next_attempt_at else ""
    lines = [
        f"Delivery {found.id} to {found.merchant_id}/{found.endpoint_id}",
        f"  event     {found.event_id} ({found.type}), revision {found.body_rev}",
        f"  state     {found.state}{ended}{next_at}",
        f"  attempts  {found.attempts}, replays {found.replays}",
        f"  made      {utc(found.created_at)}",
        f"  digest    {found.digest or '–'}",
        f"  job       {found.job or 'none'}",
    ]
    for one in log:
        facts = [
            f"attempt {one.attempt}",
            utc(one.begun_at),
            "no answer" if one.status is None else str(one.status),
            f"{one.duration_ms} ms",
            one.address or "no address",
            f"keys {' '.join(one.key_ids) or '–'}",
            "" if one.counted else "(came too late to count)",
        ]
        lines += ["", "  " + "  ".join(filter(None, facts))]
        lines += [f"    {one.excerpt}"] if one.excerpt else []
    return "\n".join(lines)


@dataclass(frozen=True)
class _Step:
    """Pages of ids, and what is done with one."""

    what: str
    pages: Callable[[int], Iterator[list[str]]]
    send: Callable[[list[str]], Replayed]


def _replay(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.rate <= 100_000:
        raise InvalidRequest(f"--rate {arguments.rate:g}: above 0, at most 100000")
    with opened("deliveries replay") as (settings, db):
        steps = _steps(arguments, settings, db)
        counts = [sum(map(len, step.pages(COUNT_PAGE))) for step in steps]
        if arguments.dry_run:
            for step, count in zip(steps, counts, strict=True):
                print(f"{count} {step.what} would be sent. Nothing was changed.")
            return 0
        done = _send(steps, total=sum(counts), rate=arguments.rate)
    print(f"{done.moved} deliveries are due again.")
    if done.busy:
        print(f"{done.busy} were left alone: an attempt may be in flight. Repeat it for them.")
    return 0


def _steps(arguments: argparse.Namespace, settings: Settings, db: Database) -> list[_Step]:
    wanted = _filter(arguments, db)
    filtered = wanted != Filter()
    if arguments.missed_by:
        alone = Filter(since=wanted.since)
        if arguments.ids or wanted != alone or wanted.since is None:
            raise InvalidRequest(
                "--missed-by goes with --since, and with nothing else that chooses deliveries"
            )
        merchant, _, endpoint = arguments.missed_by.partition("/")
        return _missed(asking.endpoint(merchant, endpoint, settings), wanted, db)
    if bool(arguments.ids) == filtered:
        raise InvalidRequest("name deliveries, or choose them by a filter or --missed-by")
    send = lambda ids: replay.again(db, ids)  # noqa: E731 - the same for both kinds of pages
    if arguments.ids:
        ids = list(dict.fromkeys(arguments.ids))
        with db.connection() as connection:
            unknown = [id_ for id_ in ids if replays.facts(connection, id_) is None]
        if unknown:
            raise NotFound(f"no delivery {', '.join(unknown)}; nothing was changed")

        def named(page: int) -> Iterator[list[str]]:
            yield from (ids[at : at + page] for at in range(0, len(ids), page))

        return [_Step("deliveries", named, send)]
    narrow = replay.narrowed(wanted)
    return [_Step("deliveries", lambda page: replay.matching(db, narrow, page=page), send)]


def _missed(endpoint: Endpoint, wanted: Filter, db: Database) -> list[_Step]:
    since = wanted.since
    assert since is not None
    given_up = replay.given_up(endpoint, since=since)
    return [
        _Step(
            "deliveries that were given up",
            lambda page: replay.matching(db, given_up, page=page),
            lambda ids: replay.again(db, ids),
        ),
        _Step(
            "events that it was never sent",
            lambda page: replay.never_made(db, endpoint, since=since, page=page),
            lambda ids: Replayed(replay.make(db, endpoint, ids)),
        ),
    ]


def _send(steps: list[_Step], *, total: int, rate: float) -> Replayed:
    """Page by page, no faster than `rate` a second, with a bar for whoever watches."""
    page = max(1, min(replay.PAGE, int(rate)))
    begun = time.monotonic()
    moved = busy = passed = 0
    try:
        for step in steps:
            for ids in step.pages(page):
                done = step.send(ids)
                moved, busy, passed = moved + done.moved, busy + done.busy, passed + len(ids)
                _show_progress(passed, max(total, passed))
                time.sleep(max(0.0, begun + passed / rate - time.monotonic()))
    except (KeyboardInterrupt, VpayError):
        # Pages are committed one by one: whoever stops it, or loses Postgres, is told how far
        # it came, and need not count what is due by now.
        print(f"\nStopped: at least {moved} of {total} are due again.", file=sys.stderr)
        raise
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return Replayed(moved, busy)


def _show_progress(passed: int, total: int) -> None:
    if sys.stderr.isatty():
        full = 40 * passed // total
        bar = "#" * full + "." * (40 - full)
        print(f"\r[{bar}] {passed} of {total}", end="", file=sys.stderr, flush=True)


def _status(status: int | None, attempts: int) -> str:
    return str(status) if status is not None else "none" if attempts else "–"
