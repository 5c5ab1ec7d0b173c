"""`vpay-tasks charges`: those that are not over, and `charges show`: all about one."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from vpay_tasks.cli import timeline
from vpay_tasks.cli.asking import hung, opened, screen
from vpay_tasks.cli.parser import Commands, add_command, add_json, print_json
from vpay_tasks.errors import NotFound, sanitise
from vpay_tasks.status import human, table
from vpay_tasks.store import cases
from vpay_tasks.store.cases import Case, Line, Lines

ROWS: Final = 100
"""A screenful or two; --json has as many."""


def register(commands: Commands) -> None:
    about = "payments that are not over, the oldest first; `charges show ID` is all about one"
    listed = add_command(commands, "charges", about, _list)
    listed.add_argument(
        "--unresolved",
        action="store_true",
        help="only those that wait for a person: without the rail's word for a day, contradicted",
    )
    add_json(listed)
    inner = listed.add_subparsers(metavar="show")
    shown = add_command(inner, "show", "one charge from its intent to its webhooks", _show)
    shown.add_argument("id", help="ch_…, pi_…, or the reference that the rail knows it by")
    add_json(shown)


def _list(arguments: argparse.Namespace) -> int:
    with opened("charges") as (_, db), db.connection() as connection:
        look = cases.in_doubt if arguments.unresolved else cases.live
        found = look(connection, rows=ROWS)
    if arguments.json:
        print_json({"number": found.number, "charges": [asdict(line) for line in found.lines]})
    else:
        print(_as_text(found, unresolved=arguments.unresolved, width=screen()))
    return 0


def _as_text(found: Lines, *, unresolved: bool, width: int | None = None) -> str:
    if not found.lines:
        return "No charge waits for a person." if unresolved else "No charge is under way."
    rows = [
        [
            line.id,
            line.rail,
            line.state + (", contradicted" if line.contradicted else ""),
            timeline.amount(line.amount, line.currency),
            human(line.age),
            str(line.polls),
            "never" if line.asked is None else f"{human(line.asked)} ago",
            _next_ask(line),
        ]
        for line in found.lines
    ]
    head = ["Charge", "Rail", "State", "Amount", "Age", "Asked", "Last", "Next"]
    shown = table(head, rows, left=3)
    if width is not None and any(len(line) > width for line in shown.splitlines()):
        # On a narrow screen, what helps least to tell which one to look into.
        shown = table(*_without((1, 5, 6), head, rows), left=2)
    more = ""
    if found.number > len(found.lines):
        least = "at least " if found.number >= cases.CAP else ""
        more = f"\n(the {len(rows)} oldest of {least}{found.number})"
    return f"{shown}{more}\n\nAll about one: vpay-tasks charges show ID"


def _without(
    columns: tuple[int, ...], head: list[str], rows: list[list[str]]
) -> tuple[list[str], list[list[str]]]:
    kept = [place for place in range(len(head)) if place not in columns]
    return [head[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _next_ask(line: Line) -> str:
    if line.state in {"succeeded", "failed"}:
        return "–"
    if line.parked is not None:
        return f"parked, {line.parked}"
    if line.next_ask is None:
        return "no poll"
    if line.asking:
        return "now"
    return f"in {human(line.next_ask)}" if line.next_ask > 0 else "due"


def _show(arguments: argparse.Namespace) -> int:
    with opened("charges show") as (settings, db), db.connection() as connection:
        case = cases.find(connection, arguments.id, rails=list(settings.rails))
    if case is None:
        raise NotFound(
            f"no charge {sanitise(arguments.id, 64)!r}: give its id (ch_…), its intent's (pi_…) or"
            " the reference of a rail of these settings; an intent that nobody confirmed has none"
        )
    if arguments.json:
        print_json(_as_json(case))
    else:
        print(_told(case, screen()))
    return 0


def _told(case: Case, width: int | None = None) -> str:
    charge = case.charge
    payer = f" from {charge.payer}" if charge.payer else ""
    age = (charge.now - charge.created_at).total_seconds()
    facts = [
        ["Charge", charge.id],
        ["State", charge.state + (", contradicted" if charge.contradicted_at else "")],
        ["Amount", f"{timeline.amount(charge.amount, charge.currency)}{payer}"],
        ["Rail", f"{charge.rail}, reference {charge.reference}"],
        ["Intent", f"{charge.intent_id}, {charge.intent_status}, of {charge.merchant_id}"],
        ["Age", f"{human(age)}{timeline.asked(charge.polls)}"],
    ]
    told = list(timeline.steps(case)) or ["Nothing: it is over, and what is to be told is told."]
    happened = timeline.entries(case)
    now = sum(entry.at <= charge.now for entry in happened)
    rows = [[_clock(entry.at), entry.what, entry.text] for entry in happened]
    rows.insert(now, [_clock(charge.now), "now", "─" * 20])
    column = max(len(what) for _, what, _ in rows)
    return "\n".join(
        [
            *(f"{name:<8}{text}" for name, text in facts),
            "",
            "To do",
            *(hung("  ", step, width) for step in told),
            "",
            f"{'UTC':<19}  What",
            *(hung(f"{at}  {what:<{column}}  ", text, width) for at, what, text in rows),
        ]
    )


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _as_json(case: Case) -> dict[str, Any]:
    """Keys are only ever added; instants are ISO 8601, durations seconds."""
    charge = asdict(case.charge)
    return {
        "at": case.charge.now.isoformat(),
        "charge": {key: _plain(value) for key, value in charge.items() if key != "now"},
        "submits": [_flat(asdict(one)) for one in case.submits],
        "jobs": [_flat(asdict(one)) for one in case.jobs],
        "postings": [_flat(asdict(one)) for one in case.postings],
        "events": [_flat(asdict(one)) for one in case.events],
        "deliveries": [_flat(asdict(one)) for one in case.deliveries],
        "posts": [_flat(asdict(one)) for one in case.posts],
        "timeline": [_flat(asdict(one)) for one in timeline.entries(case)],
        "to_do": list(timeline.steps(case)),
    }


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
