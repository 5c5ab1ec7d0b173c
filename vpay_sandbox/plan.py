"""What a demo does, decided before anything starts: merchants, endpoints, orders, settings."""

from __future__ import annotations

import base64
import itertools
import json
import random
import secrets
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.scenarios import Scenario, Script

TEMPLATE = Path(__file__).with_name("sandbox.toml")
MERCHANTS = ("bakery", "bookshop")
# Of each merchant; the second one answers 500 to its first two posts of every event.
STEADY, SHAKY = "steady", "shaky"
SHAKY_FAILS = 2
PUSH, REDIRECT = "mtn_momo", "orange_money"
# The push rail's own sandbox takes nothing but EUR; of XAF, one unit is one minor unit.
CURRENCIES = {PUSH: "EUR", REDIRECT: "XAF"}


@dataclass(frozen=True, slots=True)
class Order:
    """One payment that the application makes. `amount` is in minor units, `payer` a push rail's;
    `opens`: whether the payer opens a redirect rail's page."""

    number: int
    merchant: str
    amount: int
    currency: str
    rail: str
    payer: str | None
    scenario: str
    opens: bool = False


@dataclass(frozen=True, slots=True)
class Orders:
    """In the order they are made. `crash`: an application takes those and is killed inside the
    last one; another application takes the `rest`."""

    crash: Sequence[Order]
    rest: Sequence[Order]

    def __len__(self) -> int:
        return len(self.crash) + len(self.rest)

    def __iter__(self) -> Iterator[Order]:
        yield from self.crash
        yield from self.rest


def endpoints() -> list[Endpoint]:
    """Two endpoints per merchant, with secrets of this run."""
    return [
        Endpoint(merchant, endpoint, (_secret(),), fail_first=fails)
        for merchant in MERCHANTS
        for endpoint, fails in ((STEADY, 0), (SHAKY, SHAKY_FAILS))
    ]


def _secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def orders(script: Script, count: int, seed: int, *, quick: bool = False) -> Orders:
    """`count` orders: the first scenarios of the script, or all of them and then the first ones
    again. `seed` decides their order and what they are worth; `quick` leaves out those that
    outlast the horizon."""
    chance = random.Random(seed)  # noqa: S311 no secret
    known = [one for one in script.all() if not (quick and one.past_horizon)]
    # Once each is enough to see: every one costs a worker, or an application.
    again = itertools.cycle(one for one in known if not one.expect.killed)
    turns = list(itertools.islice(itertools.chain(known, again), count))
    chance.shuffle(turns)
    # A confirm ends its application, so it comes last. What outlasts the horizon begins before
    # the others, or everybody waits for the one that began last.
    killed = sorted((one for one in turns if one.expect.killed), key=_is_confirm)
    late = [one for one in turns if one.past_horizon]
    others = [one for one in turns if not (one.expect.killed or one.past_horizon)]
    made = [_order(*one, chance) for one in enumerate([*killed, *late, *others], 1)]
    return Orders(made[: len(killed)], made[len(killed) :])


def _is_confirm(scenario: Scenario) -> bool:
    return scenario.expect.killed == "confirm"


def _order(number: int, scenario: Scenario, chance: random.Random) -> Order:
    rail = PUSH if scenario.payer else REDIRECT
    return Order(
        number=number,
        merchant=MERCHANTS[number % len(MERCHANTS)],
        amount=scenario.amount or chance.randint(100, 50_000),
        currency=CURRENCIES[rail],
        rail=rail,
        payer=scenario.payer or None,
        scenario=scenario.name,
        opens=scenario.opens,
    )


def write_orders(path: Path, orders: Iterable[Order]) -> None:
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
