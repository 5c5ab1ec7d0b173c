"""A receiver and a worker's insides on one database: deliveries come in, grants run when the
test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.factories import a_worker, claimed
from tests.inbox.signing import TABLES, Delivery
from tests.runtime.bench import Bench
from vpay_tasks.config import Settings, WindowsTable
from vpay_tasks.errors import VpayError
from vpay_tasks.handlers import grant_inbox, scan_inbox
from vpay_tasks.inbox import Answer, Event, Inbox, InboxJob
from vpay_tasks.inbox.registry import GRANTS, Grant
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.store.db import Database
from vpay_tasks.tables import InboxTable
from vpay_tasks.wiring import inbox as wired

PATIENT = WindowsTable(inbox_answer=30)
"""A busy machine is no reason not to keep what a test delivers."""


def tables(given: dict[str, dict[str, Any]] = TABLES) -> dict[str, InboxTable]:
    return {name: InboxTable.model_validate(table) for name, table in given.items()}


class InboxBench:
    """`deliver` what a vendor sends, `run` the grants that are due, look at the rows."""

    def __init__(self, database: Database, url: str) -> None:
        self.database = Database(url, application="tests inbox", windows=PATIENT)
        self.inbox = wired(Settings(inbox=tables()), self.database)
        a_worker(database, queues=("inbox",))
        self.worker = Bench(database, url)
        for declared in (grant_inbox.grant_inbox, scan_inbox.scan_inbox):
            self.worker.registry.add(declared)

    def deliver(self, given: Delivery, vendor: str = "stripe", account: str = "") -> Answer:
        """Taken in; no verdict is waited for, since the test runs the grant afterwards."""
        try:
            taken = self.inbox.take_in(given.body, given.headers, vendor, account)
        except VpayError as error:
            return Answer(error.http, {"error": error.word()})
        return taken if isinstance(taken, Answer) else taken.pending()

    @contextmanager
    def another(
        self, url: str = "", windows: WindowsTable = PATIENT, *, size: int = 12
    ) -> Iterator[Inbox]:
        """A receiver of another process, say, with up to `size` connections."""
        db = Database(
            url or self.database.url, size=size, application="tests another", windows=windows
        )
        inbox = wired(Settings(inbox=tables()), db)
        try:
            yield inbox
        finally:
            inbox.close()
            db.close()

    def run(self) -> int:
        """One claim of the queue, run; how many jobs it had."""
        with self.database.connection() as connection:
            messages = claimed(connection, "inbox").messages
        for message in messages:
            self.worker.runner.run_message(Envelope("inbox", tuple(message.ids), message.lease))
        return sum(len(message.ids) for message in messages)

    def ask(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with self.database.connection() as connection:
            cursor = connection.execute(query.encode(), params)
            return cursor.fetchall() if cursor.description is not None else []

    def rows(self, columns: str = "state") -> list[Any]:
        """Of every event, the oldest first; bare values if one column is asked for."""
        found = self.ask(f"SELECT {columns} FROM vpay.inbox_events ORDER BY id")
        return [row[0] for row in found] if "," not in columns else found

    def jobs(self, columns: str = "dedupe_key") -> list[Any]:
        found = self.ask(f"SELECT {columns} FROM vpay.jobs ORDER BY id")
        return [row[0] for row in found] if "," not in columns else found

    def make_due(self) -> None:
        """As if every wait were over."""
        self.ask("UPDATE vpay.inbox_events SET next_attempt_at = now() WHERE state = 'retrying'")
        self.ask("UPDATE vpay.jobs SET run_at = now(), due = lane IS NOT NULL WHERE lease IS NULL")

    def close(self) -> None:
        self.inbox.close()
        self.worker.close()
        self.database.close()


@contextmanager
def granting(grant: Grant, vendor: str = "stripe", type_: str = "*") -> Iterator[list[Event]]:
    """Have `grant` called for a vendor's events, and nothing else; what it was given."""
    seen: list[Event] = []

    def noted(event: Event, job: InboxJob) -> Any:
        seen.append(event)
        return grant(event, job)

    before = dict(GRANTS._grants)
    GRANTS._grants[vendor, type_] = noted
    try:
        yield seen
    finally:
        GRANTS._grants = before


def done(_event: Event, _job: InboxJob) -> None:
    """A grant that does nothing, well."""
