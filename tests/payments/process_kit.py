"""Submits in processes of their own, points at which they can be caught, and what becomes of
the charges that they leave.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Eventually
from tests.e2e.fleet import Fleet, Process
from tests.payment_kit import KEYS, force, read_charge, scalar
from tests.payments.poll_kit import Polls
from tests.payments.resubmit_kit import WAITING
from tests.rails.benches import BENCHES, Bench
from vpay_sandbox import journal
from vpay_sandbox.httpd import Hangup
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import Charge
from vpay_tasks.store.db import Database

RAILS = ("mtn_momo", "orange_money")
NO_BROKER = "redis://127.0.0.1:9/0"


class Submits:
    """Starts submits on this test's database and rails."""

    def __init__(self, folder: Path, database: Database, stub: StubRail) -> None:
        self._fleet = Fleet(folder, database.url, NO_BROKER)
        self._fleet.config |= {
            "worker": {"modules": []},
            "rails": {code: BENCHES[code].table(stub) for code in RAILS},
            "keys": {"payer_ref": [key.get_secret_value() for key in KEYS.payer_ref]},
        }
        self.stub = stub
        self.journal = folder / "rail.jsonl"

    def within(self, deadline: float) -> None:
        """From the next one on, a submit has this many seconds."""
        self._fleet.config["windows"] = {"submit_deadline": deadline}

    def confirm(self, code: str, intent: str) -> Process:
        return self._start("confirm", code, intent)

    def resubmit(self, charge: Charge, seen: int) -> Process:
        return self._start("resubmit", charge.id, str(seen))

    def _start(self, *words: str) -> Process:
        return self._fleet.start(
            words[0], [sys.executable, "-m", "tests.payments.one_submit", *words]
        )

    def end(self) -> None:
        self._fleet.end()

    def effects(self, effect: str) -> list[str]:
        """The reference of each such effect at the rail."""
        lines = journal.read(self.journal, "effect")
        return [line["reference"] for line in lines if line["effect"] == effect]


class Point:
    """A place where a submit can be caught: inside `with point.caught(…)`, once whatever was
    started in it is there."""

    def __init__(self, submits: Submits, bench: Bench, eventually: Eventually) -> None:
        self.stub = submits.stub
        self.bench = bench
        self.eventually = eventually

    @contextmanager
    def before_its_row(self, database: Database) -> Iterator[Callable[[], None]]:
        with database.transaction() as blocker:
            blocker.execute("LOCK TABLE vpay.provider_requests IN ACCESS EXCLUSIVE MODE")
            yield lambda: self._waits(database)

    @contextmanager
    def behind_its_row(self, _: Database) -> Iterator[Callable[[], None]]:
        assert self.bench.tokens is not None
        with self.stub.hold(self.bench.tokens) as hold:
            yield lambda: hold.wait(timeout_s=30)

    @contextmanager
    def before_the_rail_has_it(self, _: Database) -> Iterator[Callable[[], None]]:
        self.stub.script(self.bench.submits, Hangup())
        with self.stub.hold(self.bench.submits) as hold:
            yield lambda: hold.wait(timeout_s=30)

    @contextmanager
    def once_the_rail_has_it(self, _: Database) -> Iterator[Callable[[], None]]:
        with self.stub.hold(self.bench.submits) as hold:
            yield lambda: hold.wait(timeout_s=30)

    @contextmanager
    def with_the_answer_in_hand(self, database: Database) -> Iterator[Callable[[], None]]:
        with database.transaction() as blocker, self.stub.hold(self.bench.submits) as hold:

            def reached() -> None:
                hold.wait(timeout_s=30)
                blocker.execute("LOCK TABLE vpay.provider_requests IN ACCESS EXCLUSIVE MODE")
                hold.release()
                self._waits(database)

            yield reached

    def _waits(self, database: Database) -> None:
        self.eventually(lambda: scalar(database, WAITING) == 1, within=30)


def until_it_ends(database: Database, polls: Polls, charge: Charge) -> None:
    """Polls and resubmits as workers run them, with a minute passing between two of them."""
    for _ in range(12):
        with database.transaction() as tx:
            denied = read_charge(database, charge.id).not_found_streak > 0
            force(tx, charge.id, age=61, not_found_for=60 if denied else None)
        if polls.run(charge) is None:
            return
        if polls.resubmission(charge) is not None:
            assert polls.resubmit(charge) is None
    raise AssertionError(f"it has not ended: {read_charge(database, charge.id)}")
