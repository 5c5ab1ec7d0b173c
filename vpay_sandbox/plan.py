"""What a demo does, decided before anything starts: merchants, endpoints, orders, settings."""

from __future__ import annotations

import base64
import json
import random
import secrets
import string
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.scenarios import Scenario, Script

TEMPLATE = Path(__file__).with_name("sandbox.toml")
MERCHANTS = ("bakery", "bookshop")
# Of each merchant; the second one answers 500 to its first two posts of every event.
STEADY, SHAKY = "steady", "shaky"
SHAKY_FAILS = 2
# The rail's own sandbox takes nothing else.
CURRENCY = "EUR"


@dataclass(frozen=True, slots=True)
class Order:
    """One payment that the application makes. `amount` is in minor units."""

    number: int
    merchant: str
    amount: int
    currency: str
    payer: str
    scenario: str


def endpoints() -> list[Endpoint]:
    """Two endpoints per merchant, with secrets of this run."""
    return [
        Endpoint(merchant, endpoint, (_secret(),), fail_first=fails)
        for merchant in MERCHANTS
        for endpoint, fails in ((STEADY, 0), (SHAKY, SHAKY_FAILS))
    ]


def _secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def orders(script: Script, count: int, seed: int) -> list[Order]:
    """`count` orders: the demo's scenarios in turn, in an order and for amounts that `seed`
    decides."""
    chance = random.Random(seed)  # noqa: S311 no secret
    scenarios: Sequence[Scenario] = script.demo()
    turns = [scenarios[number % len(scenarios)] for number in range(count)]
    chance.shuffle(turns)
    return [
        Order(
            number=number,
            merchant=MERCHANTS[number % len(MERCHANTS)],
            amount=chance.randint(100, 50_000),
            currency=CURRENCY,
            payer=scenario.payer,
            scenario=scenario.name,
        )
        for number, scenario in enumerate(turns, 1)
    ]


def write_orders(path: Path, orders: Sequence[Order]) -> None:
    path.write_text(json.dumps([asdict(order) for order in orders], indent=1), encoding="utf-8")


def read_orders(path: Path) -> list[Order]:
    return [Order(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def write_endpoints(path: Path, endpoints: Sequence[Endpoint]) -> None:
    """For the receiver: whoever may read it can sign as we do."""
    _write_private(path, json.dumps({"endpoints": [asdict(one) for one in endpoints]}, indent=1))


def write_settings(
    path: Path, endpoints: Sequence[Endpoint], receiver_url: str, **values: str | int
) -> None:
    """The settings file of every process of vpay_tasks. `values` fill the template."""
    tables = []
    for merchant in dict.fromkeys(one.merchant for one in endpoints):
        tables.append(f'[[merchants]]\nid = "{merchant}"\n')
        tables += [
            f'[[merchants.endpoints]]\nid = "{one.id}"\n'
            f'url = "{receiver_url}/hooks/{merchant}/{one.id}"\n'
            f"secrets = {json.dumps(list(one.secrets))}\n"
            for one in endpoints
            if one.merchant == merchant
        ]
    template = string.Template(TEMPLATE.read_text(encoding="utf-8"))
    payer_key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    text = template.substitute(values, payer_key=payer_key, merchants="\n".join(tables))
    _write_private(path, text)


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
