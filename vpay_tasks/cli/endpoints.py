"""`vpay-tasks endpoints list|check|ping|pause|resume`: where webhooks go, and whether they do."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from urllib.parse import urlsplit

from vpay_tasks import config
from vpay_tasks.cli import asking, check
from vpay_tasks.cli.asking import opened
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
from vpay_tasks.errors import InvalidRequest
from vpay_tasks.status import human, table
from vpay_tasks.store import clock, lanes
from vpay_tasks.store.lanes import Standing
from vpay_tasks.webhooks import ping
from vpay_tasks.webhooks.endpoints import Endpoint, Endpoints

REASON_MAX = 200
"""Characters: a line in the list."""


def register(commands: Commands) -> None:
    group = add_group(commands, "endpoints", "webhooks out: where they go, and whether they do")
    add_json(add_command(group, "list", "every endpoint, what waits for it and why", _list))
    check.declare(group)
    pinged = add_command(
        group, "ping", "send a signed ping event and print the answer; 1 unless it is a 2xx", _ping
    )
    _add_endpoint(pinged)
    paused = add_command(
        group,
        "pause",
        "keep its deliveries until it is resumed; none is lost",
        _pause,
        role=CHANGES,
    )
    _add_endpoint(paused)
    paused.add_argument("--reason", required=True, help="why; shown in the list")
    resumed = add_command(
        group,
        "resume",
        "send what waited, now; closes its circuit, too",
        _resume,
        role=CHANGES,
    )
    _add_endpoint(resumed)
    for parser in (paused, resumed):
        parser.add_argument("--by", help="who does it (default: $SUDO_USER, $USER)")


def _add_endpoint(parser: Parser) -> None:
    parser.add_argument("merchant")
    parser.add_argument("endpoint")


def _list(arguments: argparse.Namespace) -> int:
    with opened("endpoints list") as (settings, db), db.connection() as connection:
        known = {(one.merchant_id, one.id): one for one in Endpoints(settings).all()}
        names = sorted({*known, *lanes.waiting_endpoints(connection)})
        found = lanes.standing(connection, names)
    pairs = [(one, known.get((one.merchant_id, one.endpoint_id))) for one in found]
    if arguments.json:
        print_json({"endpoints": [_as_json(one, endpoint) for one, endpoint in pairs]})
    elif not pairs:
        print("No endpoint: name them in the settings, [[merchants.endpoints]].")
    else:
        head = ["Merchant", "Endpoint", "Host", "Types", "State", "Pending", "Oldest", "Status"]
        print(table(head, [_as_row(one, endpoint) for one, endpoint in pairs], left=5))
    return 0


def _as_row(one: Standing, endpoint: Endpoint | None) -> list[str]:
    more = "+" if one.pending == lanes.COUNTED_MAX else ""
    return [
        one.merchant_id,
        one.endpoint_id,
        _host(endpoint),
        ", ".join(endpoint.types) if endpoint is not None else "–",
        state(one, endpoint),
        f"{one.pending}{more}",
        human(one.oldest_age),
        str(one.last_status) if one.last_status is not None else "–",
    ]


def _as_json(one: Standing, endpoint: Endpoint | None) -> dict[str, object]:
    return {
        **asdict(one),
        "host": _host(endpoint),
        "types": list(endpoint.types) if endpoint is not None else [],
        "in_settings": endpoint is not None,
        "state": state(one, endpoint),
    }


def state(one: Standing, endpoint: Endpoint | None) -> str:
    """One phrase; what a person did comes first."""
    if one.paused:
        return f"paused by {one.changed_by} {human(one.changed_age)} ago: {one.reason}"
    if endpoint is None:
        return "not in the settings"
    if one.trips and one.circuit_for is not None:
        if one.circuit_for > 0:
            return f"circuit open for {human(one.circuit_for)} more"
        return "circuit open, a probe is due"
    return "live"


def _host(endpoint: Endpoint | None) -> str:
    """The host alone: a path may be as good as a password."""
    try:
        return (urlsplit(endpoint.url).hostname or "–") if endpoint is not None else "–"
    except ValueError:  # a URL that is none: `endpoints check` says why
        return "–"


def _ping(arguments: argparse.Namespace) -> int:
    with opened("endpoints ping") as (settings, db):
        endpoint = _known(arguments, settings)
        with db.connection() as connection:
            now = clock.now(connection)
        answer = ping.ping(endpoint, settings, now=now)
    status = str(answer.status) if answer.status is not None else "No answer"
    print(f"{status} after {human(answer.seconds)} from {answer.address or 'no address'}")
    if answer.excerpt:
        print(f"  {answer.excerpt}")
    return 0 if answer.status is not None and 200 <= answer.status <= 299 else 1


def _pause(arguments: argparse.Namespace) -> int:
    reason, by = _words(arguments.reason, "--reason"), _who(arguments)
    with opened("endpoints pause") as (settings, db):
        endpoint = _known(arguments, settings)
        with db.connection() as connection:
            names = (endpoint.merchant_id, endpoint.id)
            if lanes.pause(connection, *names, changed_by=by, reason=reason):
                print(f"{endpoint.lane} is paused. What is in flight ends; the rest waits.")
                return 0
            (before,) = lanes.standing(connection, [names])
    print(f"{endpoint.lane} was {state(before, endpoint)}. Nothing was changed.")
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    by = _who(arguments)
    with opened("endpoints resume") as (settings, db):
        endpoint = _known(arguments, settings)
        with db.connection() as connection:
            names = (endpoint.merchant_id, endpoint.id)
            resumed = lanes.resume(connection, *names, changed_by=by)
    print(f"{endpoint.lane} {'is live again' if resumed else 'was live; nothing was changed'}.")
    return 0


def _known(arguments: argparse.Namespace, settings: Settings) -> Endpoint:
    return asking.endpoint(arguments.merchant, arguments.endpoint, settings)


def _who(arguments: argparse.Namespace) -> str:
    by = arguments.by or config.operator()
    if not by:
        raise InvalidRequest("say who does it, with --by: neither $SUDO_USER nor $USER is set")
    return _words(by, "--by")


def _words(text: str, what: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > REASON_MAX:
        raise InvalidRequest(f"{what}: 1 to {REASON_MAX} printable characters")
    return text.strip()
