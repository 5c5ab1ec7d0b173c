"""Processes of ours that are killed, for real, at the moment that the script names.

The rail holds the call (`held` in scenarios.toml), so the moment lasts as long as it takes. Each
kill is written down before it is done: the auditor compares it with the rail's journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from vpay_sandbox import journal
from vpay_sandbox.journal import Journal
from vpay_sandbox.plan import Order
from vpay_sandbox.process import wait_until
from vpay_sandbox.program import Program
from vpay_sandbox.system import System

# Until a call is held: the application starts, confirms, and the poll comes. A busy machine
# included.
HELD_S = 30.0

Call = Mapping[str, Any]
"""A line of the rail's journal: a request."""

# Who runs the poll of a charge at this moment.
POLLING = """
SELECT w.pid
FROM vpay.charges AS c
JOIN vpay.jobs AS j ON j.dedupe_key = 'poll:' || c.id AND j.started_at IS NOT NULL
JOIN vpay.workers AS w ON w.id = j.locked_by
WHERE c.provider_reference_id = %s
"""


class Kills:
    """Kills who plays one order, and keeps a journal of it."""

    def __init__(self, system: System, path: Path) -> None:
        self._system, self._path = system, path

    def application(self, application: Program, order: Order) -> None:
        """The one that is inside the submission of `order`."""
        found: list[Call] = []

        def held() -> bool:
            self._system.check()
            if application.exit_code is not None:
                raise application.died()
            found[:] = self._open(order, "submit")
            return bool(found)

        wait_until(held, f"the submission of order {order.number}", timeout_s=HELD_S)
        self._write("confirm", found[0], "the application")
        application.kill()

    def worker(self, order: Order) -> str:
        """The whole group of the worker that is asking about `order`; then the rail decides.
        Returns the group's name."""
        found: list[tuple[Call, int]] = []

        def held() -> bool:
            self._system.check()
            found[:] = [
                (call, pid)
                for call in self._open(order, "status")
                for pid in self._asking(call["reference"])
            ]
            return bool(found)

        wait_until(held, f"a question about order {order.number}", timeout_s=HELD_S)
        call, pid = found[0]
        self._write("worker", call, f"a worker (pid {pid})")
        name = self._system.kill_workers(pid)
        wish = {"reference": call["reference"], "status": "SUCCESSFUL"}
        self._system.rail.call("decide", wish)
        return name

    def _open(self, order: Order, op: str) -> list[Call]:
        return open_calls(journal.read(self._system.rail_journal), order, op)

    def _asking(self, reference: str) -> list[int]:
        """Processes that run the charge's poll: one, or none yet."""
        with psycopg.connect(self._system.database_url) as connection:
            return [pid for (pid,) in connection.execute(POLLING, (reference,))]

    def _write(self, what: str, call: Call, program: str) -> None:
        kills = Journal(self._path)
        try:
            kills.write(
                "kill", what=what, n=call["n"], reference=call["reference"], program=program
            )
        finally:
            kills.close()


def open_calls(entries: Sequence[Call], order: Order, op: str) -> list[Call]:
    """The rail's lines of the calls about `order` that are unanswered as yet."""
    mine = {
        one["reference"]
        for one in entries
        if one["kind"] == "request" and one["op"] == "submit" and one["payer"] == order.payer
    }
    answered = {one["n"] for one in entries if one["kind"] == "answer"}
    return [
        one
        for one in entries
        if one["kind"] == "request"
        and one["op"] == op
        and one["reference"] in mine
        and one["n"] not in answered
    ]
