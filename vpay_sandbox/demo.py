"""`vpay-sandbox demo` and `up`: everything started, payments made, the journals compared."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg
from rich.console import Console

from vpay_sandbox import books, plan, scenarios, table
from vpay_sandbox.auditor import audit
from vpay_sandbox.folder import KeepFolder, run_folder
from vpay_sandbox.kills import Kills
from vpay_sandbox.plan import Order, Orders
from vpay_sandbox.process import SandboxError, tail
from vpay_sandbox.program import HOME, Program, command
from vpay_sandbox.report import Report
from vpay_sandbox.scenarios import Script
from vpay_sandbox.stopping import Stopped, stoppable
from vpay_sandbox.system import System
from vpay_sandbox.watch import Watch

# Above the number of scenarios: each is met at least once.
PAYMENTS = 60
# From the first confirm. An undisturbed run takes half a minute; one that was sabotaged may never
# come to rest, and is audited then.
REST_S = 90.0
# Without a terminal nobody sees colours, and 80 columns break the table.
PLAIN_WIDTH = 110
# Between two looks at what is left up.
LOOK_EVERY_S = 1.0

Sabotage = Literal["drop-one", "wrong-secret", "two-effects", "remove-event"]
SABOTAGES: dict[Sabotage, str] = {
    "drop-one": "the receiver answers 2xx to one event and leaves it out of its journal",
    "wrong-secret": "one endpoint of the receiver has another secret",
    "two-effects": "each rail moves the money of one payment twice",
    "remove-event": "one event's row is deleted from the database before the audit",
}

ANY_EVENT = "SELECT id FROM vpay.events ORDER BY seq LIMIT 1"
# As if it had never been written: with it goes what refers to it.
REMOVE_EVENT = (
    "DELETE FROM vpay.delivery_attempts WHERE delivery_id IN"
    " (SELECT id FROM vpay.webhook_deliveries WHERE event_id = %s)",
    "DELETE FROM vpay.webhook_deliveries WHERE event_id = %s",
    "DELETE FROM vpay.events WHERE id = %s",
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line."""

    payments: int = PAYMENTS
    seed: int = 1
    quick: bool = False
    keep: bool = False
    sabotage: Sabotage | None = None


class Failure(KeepFolder):
    """The run failed; the text says how, or is empty when the table has said it."""


def demo(wish: Wish) -> int:
    """The exit status: 0 when the three journals agree."""
    return _run(wish, _Demo(wish))


def up() -> int:
    """Everything runs until a signal; no payment is made. Exit status 0 after a Ctrl-C."""
    return _run(Wish(keep=True), None)


def _run(wish: Wish, demo: _Demo | None) -> int:
    console = Console(stderr=True, highlight=False)
    folder = None
    try:
        with stoppable(), run_folder() as folder:
            _play(folder, wish, demo, console)
    except Stopped as stopped:
        console.print("stopped; nothing is left running")
        return stopped.exit
    except Failure as failure:
        if str(failure):
            console.print(f"error: {failure}", markup=False, soft_wrap=True)
            console.print(f"logs and journals: {folder}", markup=False, soft_wrap=True)
        return 1
    return 0


def _play(folder: Path, wish: Wish, demo: _Demo | None, console: Console) -> None:
    try:
        with _system(folder, wish, console) as system:
            try:
                agrees = demo is None or demo.run(system, console)
            except psycopg.Error:
                system.check()  # names the server when it is gone
                raise
            if wish.keep:
                _stay(system, console)
            if not agrees:
                raise Failure
    except (SandboxError, psycopg.Error, OSError) as error:
        raise Failure(str(error)) from error


def _system(folder: Path, wish: Wish, console: Console) -> System:
    return System(
        folder,
        plan.endpoints(),
        rail_sabotage="two-effects" if wish.sabotage == "two-effects" else None,
        receiver_sabotage=(
            wish.sabotage if wish.sabotage in {"drop-one", "wrong-secret"} else None
        ),
        say=lambda what: console.print(f"{what} …"),
    )


class _Demo:
    """Payments, the kills, the wait, the audit."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.script: Script = scenarios.load()
        self.orders: Orders = plan.orders(self.script, wish.payments, wish.seed, quick=wish.quick)
        self.began = time.monotonic()

    def run(self, system: System, console: Console) -> bool:
        """Whether the journals agree; the table and the last line are told."""
        if self.orders.crash:
            self._crash(system, console)
        self._pay(system, console)
        if self.wish.sabotage == "remove-event":
            _remove_an_event(system.database_url)
        report = self._audit(system)
        console.print(f"done after {time.monotonic() - self.began:.0f} s")
        sys.stderr.flush()
        out = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
        table.show(out, report, system.folder)
        print(json.dumps(report.as_json()), flush=True)
        return report.agrees

    def _crash(self, system: System, console: Console) -> None:
        """Before the other payments: whatever else the victims had in hand would be asked
        about twice, and the script counts questions."""
        console.print(
            f"an application confirms {len(self.orders.crash)} payments, to be killed at it …"
        )
        kills = Kills(system, kill_journal(system))
        # One at a time: the last order's submission is then all that it has in hand.
        shop = start_shop(system, "orders-crash", self.orders.crash, threads=1)
        try:
            # The last one first: it can't wait, while a question is held whenever it is asked.
            for order in reversed(self.orders.crash):
                if self.script.by_name[order.scenario].expect.killed == "confirm":
                    kills.application(shop, order)
                    whom, inside = "the application", "the submission"
                else:
                    whom, inside = kills.worker(order), "a question"
                console.print(f"  kill -9: {whom}, inside {inside} of order {order.number}")
        finally:
            shop.stop(patience_s=1.0)

    def _pay(self, system: System, console: Console) -> None:
        shop = start_shop(system, "orders", self.orders.rest)
        met = [self.script.by_name[order.scenario] for order in self.orders]
        # One event per end; what is left to a human has none.
        told = [
            order.merchant
            for order, one in zip(self.orders, met, strict=True)
            if one.expect.state != "unresolved"
        ]
        wanted = sum(told.count(one.merchant) for one in system.endpoints)
        console.print(
            f"an application confirms {len(self.orders.rest)} payments; each one's end is told to"
            " two endpoints …"
        )

        def producing() -> bool:
            system.check()
            return shop.exit_code is None

        try:
            with Watch(console, met, wanted) as watch:
                rest = watch.until_quiet(system.database_url, producing, timeout_s=REST_S)
        finally:
            shop.stop(patience_s=1.0)
        if not rest:
            console.print(f"not everything came to rest within {REST_S:g} s; comparing anyway")
        if shop.exit_code != 0:
            console.print(f"the application had errors:\n{tail(shop.log)}", markup=False)

    def _audit(self, system: System) -> Report:
        kept = books.read(
            system.database_url,
            system.rail_journal,
            system.receiver_journal,
            kill_journal(system),
        )
        endpoints = [(one.merchant, one.id) for one in system.endpoints]
        return audit(kept, self.script, endpoints, asked=len(self.orders))


def kill_journal(system: System) -> Path:
    return system.folder / "kills.jsonl"


def start_shop(system: System, name: str, orders: Sequence[Order], *, threads: int = 8) -> Program:
    """An application that takes `orders`, as a process of its own."""
    path = system.folder / f"{name}.json"
    plan.write_orders(path, orders)
    words: list[str | Path] = [sys.executable, "-m", "vpay_sandbox.producer", "--orders", path]
    words += ["--journal", system.folder / "application.jsonl", "--threads", str(threads)]
    return system.start("application", words)


def _remove_an_event(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(ANY_EVENT).fetchone()
        if row is not None:
            for statement in REMOVE_EVENT:
                connection.execute(statement, row)


def _stay(system: System, console: Console) -> None:
    """Until a signal. Parts that end meanwhile are named: somebody may be trying just that."""
    console.print(_how_to_look(system), soft_wrap=True, markup=False)
    told = ""
    try:
        while True:
            threading.Event().wait(LOOK_EVERY_S)
            try:
                system.check()
            except SandboxError as error:
                if str(error) != told:
                    told = str(error)
                    console.print(told, markup=False, soft_wrap=True)
    except Stopped:
        console.print("stopping …")


def _how_to_look(system: System) -> str:
    orders = system.folder / "orders.json"
    if not orders.exists():
        plan.write_orders(orders, plan.orders(scenarios.load(), 10, 1))
    status = command("vpay-tasks", "main")
    # A tree that is not installed is found from its own folder only.
    go = "" if len(status) == 1 else f"cd {_words(HOME)} && "
    pay: list[str | Path] = [sys.executable, "-m", "vpay_sandbox.producer", "--orders", orders]
    return f"""
Everything is still running. In another terminal:
  export VPAY_CONFIG={_words(system.settings)}
  {go}{_words(*status, "status")}
  {_words(system.postgres.bin("psql"), system.database_url)}
  curl http://127.0.0.1:{system.metrics_port}/metrics
  {go}{_words(*pay)}  # makes more payments
Logs and journals: {system.folder}
Ctrl-C here stops everything.
"""


def _words(*words: str | Path) -> str:
    return shlex.join(str(word) for word in words)
