"""`vpay-tasks endpoints check URL`: what the egress guard decides, before anything is
configured. Needs no settings and no database."""

from __future__ import annotations

import argparse
from typing import Any, Final

from vpay_tasks.cli.parser import Commands, add_command, add_json, print_json
from vpay_tasks.webhooks import egress
from vpay_tasks.webhooks.egress import SANDBOX, EgressRefused, NameRefused, NameUnresolved, Rules

PATIENCE_S: Final = 5.0
"""For the resolver; what a delivery gives it, too."""


def declare(group: Commands) -> None:
    about = "say whether the egress guard lets deliveries go to URL; 1 if not, with the class"
    parser = add_command(group, "check", about, _check)
    parser.add_argument("url", metavar="URL")
    parser.add_argument(
        "--no-resolve", action="store_true", help="judge the URL as it is written, ask no DNS"
    )
    parser.add_argument(
        "--sandbox",
        action="store_true",
        help="by the rules of egress.allow_private_targets instead of livemode's",
    )
    add_json(parser)


def _check(arguments: argparse.Namespace) -> int:
    found = _decided(
        arguments.url, SANDBOX if arguments.sandbox else Rules(), resolve=not arguments.no_resolve
    )
    if arguments.json:
        print_json(found)
    elif found["allowed"]:
        print("allowed" + "".join(f"\n  {address}" for address in found["addresses"]))
    else:
        print(f"refused: {found['class']}\n  {found['why']}")
    return 0 if found["allowed"] else 1


def _decided(url: str, rules: Rules, *, resolve: bool) -> dict[str, Any]:
    try:
        target = egress.parse(url, rules)
        found = egress.resolve(target, PATIENCE_S, rules) if resolve else []
    except EgressRefused as refused:
        return _no(str(refused.kind), refused.why)
    except NameRefused as refused:
        return _no(f"DNS->{refused.kind}", "the name leads to an address that is not called")
    except NameUnresolved as failed:
        return _no("DNS", str(failed).removeprefix("dns_failed: "))
    return {"allowed": True, "class": None, "why": None, "addresses": list(map(str, found))}


def _no(kind: str, why: str) -> dict[str, Any]:
    return {"allowed": False, "class": kind, "why": why, "addresses": []}
