"""A shop, its customers, a rail, a receiver and a fleet: payments go on while a test takes the
ground away, and afterwards the checker asks the promises of what is left."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.conftest import Eventually
from tests.e2e.fleet import Fleet
from tests.invariants import NAMES, check
from vpay_sandbox.journal import read
from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.stub import StubProcess
from vpay_sandbox.stub_rail import StubRail
from vpay_sandbox.stub_receiver import StubReceiver
from vpay_tasks import config, payments, wiring
from vpay_tasks.errors import AmbiguousCommit, VpayError

SECRET: Final = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
KEY: Final = "bm90LWEtc2VjcmV0LWJ1dC0zMi1ieXRlcy1sb25nISE="
PAYERS: Final = ("46733123601", "46733123602", "46733123611")
"""Approves at the first poll, at the third, has no funds."""
CUSTOMERS: Final = 4
"""Paying at once."""

WINDOWS: Final = {
    "submit_deadline": 5,
    "recovery": 6,
    "not_found": 5,
    "horizon": 600,
    "rail_connect": 2,
    "rail_request": 3,
    "fan_out_every": 1,
    "scan_every": 5,
}
"""Those of vpay_sandbox/sandbox.toml, but for the horizon, which no test here is to reach."""

UNDER_WAY: Final = """
SELECT (SELECT count(*) FROM vpay.charges WHERE state IN ('submitting', 'submitted', 'pending'))
    + (SELECT count(*) FROM vpay.webhook_deliveries WHERE state = 'pending')
    + (SELECT count(*) FROM vpay.events WHERE fanout_state = 'pending')
"""
FORWARD: Final = """
UPDATE vpay.jobs
SET run_at = now(), due = lane IS NOT NULL
WHERE lease IS NULL AND parked_at IS NULL AND crashes + failures > 0
    AND run_at > now() + interval '2 seconds'
"""
"""The back-off behind crashes and failures in a row: time is moved, not waited for."""


class Street:
    """`url` is what every process and the shop itself connect with."""

    def __init__(self, folder: Path, url: str, broker: str) -> None:
        self.rail = StubRail(journal=folder / "rail.jsonl")
        receiver = StubReceiver(
            [Endpoint("shop", "main", secrets=(SECRET,))], journal=folder / "receiver.jsonl"
        )
        self.receiver: StubReceiver | StubProcess = receiver.start()
        self.rail.start()
        self.folder = folder
        self.fleet = Fleet(folder, url, broker)
        self.fleet.config |= self._settings()
        self._wire()
        self.wrote: list[dict[str, Any]] = []
        """The shop's own ledger: what it saw committed, and what it can't know."""
        self.refused: list[VpayError] = []
        self._numbers = itertools.count(1)
        self._pause = threading.Event()

    def _wire(self) -> None:
        settings = config.read(self.fleet.write(), {})
        self.db = wiring.database(settings, application="tests shop")
        self._rail = wiring.rails(settings)["mtn_momo"]

    def set(self, table: str, **values: Any) -> None:
        """Other settings, for everybody, before anybody is there."""
        self.fleet.config[table] = {**self.fleet.config[table], **values}
        self.db.close()
        self._wire()

    def move_to(self, day: Mapping[str, str]) -> None:
        """All processes from now on, and who is told, have this environment: it takes no other
        day's signature."""
        self.fleet.extra |= day
        self.receiver.stop()
        self.receiver = StubProcess(
            "vpay_sandbox.stub_receiver",
            ["--journal", self.folder / "receiver.jsonl", "--endpoint", f"shop/main={SECRET}"],
            log=self.folder / "receiver.log",
            env={**os.environ, **day},
        )
        (shop,) = self.fleet.config["merchants"]
        shop["endpoints"][0]["url"] = self._told_at()

    def _told_at(self) -> str:
        return f"{self.receiver.url}/hooks/shop/main"

    def _settings(self) -> dict[str, Any]:
        keys = self.rail.credentials
        return {
            "worker": {"modules": [], "run_lease": 3.0, "grace": 5.0},
            "dispatch": {"claim_lease": 2.5},
            "rails": {
                "mtn_momo": {
                    "base_url": self.rail.url,
                    "api_user": keys.api_user,
                    "api_key": keys.api_key,
                    "subscription_key": keys.subscription_key,
                }
            },
            "keys": {"payer_ref": [KEY]},
            "merchants": [
                {
                    "id": "shop",
                    "endpoints": [{"id": "main", "url": self._told_at(), "secrets": [SECRET]}],
                }
            ],
            "ladders": {
                "error": [0.5, 1, 1.5, 2],
                "poll": [0.4, 0.8, 1.2, 1.6, 2],
                "delivery": [0.4, 0.8] + [1.6] * 20,
                "hourly": 2,
            },
            "windows": WINDOWS,
        }

    def open(self, eventually: Eventually) -> None:
        """Two dispatchers, two groups of workers, all of them at work."""
        for _ in range(2):
            self.fleet.dispatcher()
            self.fleet.workers(threads=4)
        eventually(lambda: all(one.said("boot") for one in self.fleet.processes), within=90)

    def pay(self, payer: str = PAYERS[0]) -> str | None:
        """One customer's payment; the charge's id, if there is one for certain."""
        order, intent = next(self._numbers), None
        try:
            with self.db.transaction() as tx:
                intent = payments.create_intent(tx, "shop", 1_000, "EUR")
        except VpayError as error:
            if isinstance(error, AmbiguousCommit) and intent is not None:
                self._note(order, "intent", intent.id, "ambiguous")
            self.refused.append(error)
            return None
        self._note(order, "intent", intent.id, "committed")
        for _ in range(20):
            try:
                answer = payments.confirm(self.db, intent.id, rail=self._rail, payer=payer)
            except VpayError as error:
                self.refused.append(error)
                self._pause.wait(0.5)
            else:
                self._note(order, "charge", answer.charge.id, "committed")
                return answer.charge.id
        return None

    def _note(self, order: int, what: str, id_: str, how: str) -> None:
        self.wrote.append({"order": order, "what": what, "id": id_, "how": how})

    def charges(self) -> int:
        """How many the shop knows to be committed."""
        return sum(line["what"] == "charge" for line in list(self.wrote))

    @contextmanager
    def customers(self, *, pause: float = 0.1) -> Iterator[Callable[[], int]]:
        """Payments one after the other, by a few at once, until the block ends."""
        over = threading.Event()

        def shopping(first: int) -> None:
            for nth in itertools.count(first):
                if over.is_set():
                    return
                self.pay(PAYERS[nth % len(PAYERS)])
                self._pause.wait(pause)

        with ThreadPoolExecutor(CUSTOMERS) as pool:
            shoppers = [pool.submit(shopping, first) for first in range(CUSTOMERS)]
            try:
                yield self.charges
            finally:
                over.set()
        for one in shoppers:
            one.result()

    def drain(self, url: str, eventually: Eventually, *, within: float = 60.0) -> None:
        """Wait until nothing is under way any more, nor anything late."""

        def at_rest() -> bool:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(FORWARD.encode())
                row = connection.execute(UNDER_WAY.encode()).fetchone()
            assert row is not None
            assert row[0] == 0
            return True

        eventually(at_rest, within=within)

    def check(self, url: str, **more: Any) -> dict[str, list[str]]:
        """What breaks the promises; only those that are broken."""
        with psycopg.connect(url, autocommit=True) as connection:
            found = check(
                connection,
                rail=self.lines("rail"),
                receivers=self.lines("receiver"),
                producer=list(self.wrote),
                endpoints=[("shop", "main")],
                **{"at_rest": True, **more},
            )
        return {name: found[name] for name in NAMES if found[name]}

    def lines(self, whose: str) -> list[dict[str, Any]]:
        """The journal of the rail or of the receiver."""
        return read(self.folder / f"{whose}.jsonl")

    def close(self) -> None:
        self.fleet.end()
        self.db.close()
        self.receiver.stop()
        self.rail.stop()
