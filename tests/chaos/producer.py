"""An application that takes payments at a steady rate, and writes down what it saw committed.

python -m tests.chaos.producer --seed 1 --first 1 --per-second 6 --ledger producer.jsonl

It may be killed at any moment: a line is written before and after each step. SIGTERM: no further
order is begun.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.chaos.canaries import MERCHANTS
from vpay_sandbox import scenarios
from vpay_sandbox.journal import Journal
from vpay_sandbox.plan import CURRENCIES, PUSH, REDIRECT, Order
from vpay_sandbox.producer import RETURN_URL, open_page
from vpay_tasks import config, payments, wiring
from vpay_tasks.errors import AmbiguousCommit, VpayError

THREADS: Final = 16
"""Of a confirm whose rail is silent for 3 s, six begun a second."""
TRIES: Final = 6
"""To confirm an intent: an application asks again when its database was away."""
AGAIN_S: Final = 1.0
LATE: Final = 0.03
"""The share of those that outlast the horizon: each is asked about to the end of the soak."""


def order(seed: int, number: int, script: scenarios.Script) -> Order:
    """The order `number`: the same for a producer that was killed and begun anew."""
    chance = random.Random(f"order {seed} {number}")
    known = [one for one in script.all() if not one.expect.killed]
    late = chance.random() < LATE
    scenario = chance.choice([one for one in known if one.past_horizon == late])
    rail = PUSH if scenario.payer else REDIRECT
    return Order(
        number=number,
        merchant=chance.choice(MERCHANTS),
        amount=scenario.amount or chance.randint(100, 50_000),
        currency=CURRENCIES[rail],
        rail=rail,
        payer=scenario.payer or None,
        scenario=scenario.name,
        opens=scenario.opens,
    )


class Shop:
    """Makes an intent and confirms it, per order; the ledger has a line for each commit."""

    def __init__(self, settings: config.Settings, ledger: Journal) -> None:
        self._rails = wiring.rails(settings)
        self._db = wiring.database(settings, application="soak application")
        self._ledger = ledger
        self._pause = threading.Event()

    def take(self, order: Order) -> None:
        self._ledger.write("begin", order=order.number, scenario=order.scenario)
        metadata = {"order": str(order.number), "scenario": order.scenario}
        intent = None
        try:
            with self._db.transaction() as tx:
                intent = payments.create_intent(
                    tx, order.merchant, order.amount, order.currency, metadata=metadata
                )
        except AmbiguousCommit:
            self._wrote(order, "intent", intent.id if intent else "", "ambiguous")
            return
        except VpayError as error:
            self._ledger.write("refused", order=order.number, why=type(error).__name__)
            if intent is not None:  # it was written, and whatever became of it is no commit
                self._wrote(order, "intent", intent.id, "refused")
            return
        self._wrote(order, "intent", intent.id, "committed")
        self._confirm(order, intent.id)

    def _confirm(self, order: Order, intent: str) -> None:
        for _ in range(TRIES):
            try:
                answer = payments.confirm(
                    self._db,
                    intent,
                    rail=self._rails[order.rail],
                    payer=order.payer,
                    return_url=None if order.payer else RETURN_URL,
                )
            except VpayError as error:
                how = "ambiguous" if isinstance(error, AmbiguousCommit) else "refused"
                self._wrote(order, "charge", "", how)
                self._pause.wait(AGAIN_S)
                continue
            self._wrote(order, "charge", answer.charge.id, "committed")
            match answer:
                case payments.Confirmed(_, payments.Redirect(url)) if order.opens:
                    open_page(url)
            return

    def _wrote(self, order: Order, what: str, id_: str, how: str) -> None:
        self._ledger.write("wrote", order=order.number, what=what, id=id_, how=how)

    def close(self) -> None:
        self._db.close()


def serve(shop: Shop, seed: int, first: int, per_second: float, stop: threading.Event) -> None:
    """Until `stop`: one order begins every 1/`per_second` s, as long as a thread is free."""
    script, free = scenarios.load(), threading.Semaphore(THREADS)
    begun = time.monotonic()

    def take(one: Order) -> None:
        try:
            shop.take(one)
        finally:
            free.release()

    with ThreadPoolExecutor(THREADS) as pool:
        taken = []
        for nth, number in enumerate(itertools.count(first)):
            if stop.wait(max(begun + nth / per_second - time.monotonic(), 0.0)):
                break
            free.acquire()
            taken.append(pool.submit(take, order(seed, number, script)))
        for one in taken:
            one.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.producer")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, required=True, help="the first order's number")
    parser.add_argument("--per-second", type=float, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    args = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    ledger = Journal(args.ledger)
    shop = Shop(config.load(), ledger)
    try:
        serve(shop, args.seed, args.first, args.per_second, stop)
    finally:
        shop.close()
        ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
