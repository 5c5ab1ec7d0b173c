"""An application that takes payments, as a merchant's own would: requests in a few threads.

python -m vpay_sandbox.producer --orders orders.json --journal application.jsonl

It uses what any application uses: the settings, a database, a rail, create_intent and confirm.
Payers who are sent to a page, and open it, are played here too.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from vpay_sandbox.journal import Journal
from vpay_sandbox.plan import Order, read_orders
from vpay_tasks import config, payments, wiring
from vpay_tasks.errors import VpayError

RETURN_URL = "https://shop.example/back"
# For a page of the stub rail's. Longer: an order's thread is taken up by a payer.
PAGE_S = 5.0


class Shop:
    """Makes an intent and confirms it, per order."""

    def __init__(self, settings: config.Settings) -> None:
        self._rails = wiring.rails(settings)
        self._db = wiring.database(settings, application="sandbox application")

    def take(self, order: Order) -> tuple[str, str]:
        """The intent's id, and what confirm answered."""
        metadata = {"order": str(order.number), "scenario": order.scenario}
        with self._db.transaction() as tx:
            intent = payments.create_intent(
                tx, order.merchant, order.amount, order.currency, metadata=metadata
            )
        answer = payments.confirm(
            self._db,
            intent.id,
            rail=self._rails[order.rail],
            payer=order.payer,
            return_url=None if order.payer else RETURN_URL,
        )
        match answer:
            case payments.Confirmed(_, payments.Redirect(url)) if order.opens:
                open_page(url)
        return intent.id, type(answer).__name__

    def close(self) -> None:
        self._db.close()


def open_page(url: str) -> None:
    """As a payer's browser does; what the page says is the payer's business."""
    where = urlsplit(url)
    browser = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PAGE_S)
    try:
        browser.request("GET", where.path)
        browser.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        print(f"a payer could not open a page: {type(error).__name__}", file=sys.stderr)
    finally:
        browser.close()


def serve(
    shop: Shop, orders: Sequence[Order], journal: Journal, *, threads: int, per_second: float
) -> int:
    """Takes every order, at most `threads` at a time; one begins every 1/`per_second` s, as
    customers come one by one. Returns how many could not be taken."""
    lock, began, pause = threading.Lock(), time.monotonic(), threading.Event()

    def take(order: Order) -> bool:
        try:
            intent, answer = shop.take(order)
        except VpayError as error:
            intent, answer = "", f"{type(error).__name__}: {error}"
        with lock:
            journal.write("order", number=order.number, intent=intent, answer=answer)
        if not intent:
            print(f"order {order.number}: {answer}", file=sys.stderr)
        return bool(intent)

    with ThreadPoolExecutor(threads) as pool:
        taken = []
        for nth, order in enumerate(orders):
            pause.wait(max(began + nth / per_second - time.monotonic(), 0.0))
            taken.append(pool.submit(take, order))
        return [one.result() for one in taken].count(False)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vpay_sandbox.producer")
    parser.add_argument("--orders", type=Path, required=True, help="a list, as plan.py writes it")
    parser.add_argument("--journal", type=Path, help="JSON lines, one per order")
    parser.add_argument("--threads", type=int, default=8, help="orders at once")
    parser.add_argument("--per-second", type=float, default=10.0, help="orders begun")
    args = parser.parse_args(argv)
    try:
        shop = Shop(config.load())
    except VpayError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit
    journal = Journal(args.journal)
    try:
        refused = serve(
            shop,
            read_orders(args.orders),
            journal,
            threads=args.threads,
            per_second=args.per_second,
        )
    finally:
        shop.close()
        journal.close()
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
