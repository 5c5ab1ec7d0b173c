"""What a user's grant is given: the event, and its job, whose end is the event's end too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from vpay_tasks.core.job import Job
from vpay_tasks.errors import Conflict, InvalidRequest, sanitise
from vpay_tasks.store import inbox
from vpay_tasks.store.db import Connection, Database

_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
REASON_MAX: Final = 255


@dataclass(frozen=True)
class Event:
    """A vendor's event, verified when it was received. `json` is its body, with Decimals for
    numbers with a point; `raw` the bytes that were signed. `reference` is cut to 255
    characters. It may be old, and overtaken by newer ones: compare before you write."""

    vendor: str
    account: str
    id: str
    type: str
    reference: str | None
    received_at: datetime
    json: Any = field(repr=False)
    raw: bytes = field(repr=False)


class InboxJob:
    """The run of one grant: a `Job` with the event's verdict. Valid only while it runs."""

    def __init__(self, job: Job, row: inbox.Row, db: Database) -> None:
        self._job = job
        self._row = row
        self.db = db
        self.finished = False
        """Whether `finishing()` has committed: nothing is left to be written."""
        self._verdict: tuple[str, str | None] = ("DONE", None)

    @property
    def id(self) -> int:
        return self._job.id

    @property
    def kind(self) -> str:
        return self._job.kind

    @property
    def attempt(self) -> int:
        """1 plus the attempts that failed, as the event counts them."""
        return self._row.attempts + 1

    @property
    def deadline(self) -> float:
        return self._job.deadline

    @property
    def cancelled(self) -> bool:
        return self._job.cancelled

    @property
    def held(self) -> bool:
        return self._job.held

    def verdict(self, word: str, reason: str = "") -> None:
        """What this and every later delivery of the event is answered, if it ends as done:
        `PAID`, say. Of letters, digits, `_`, `.` and `-`, 64 at most; `DONE` unless said.
        The vendor reads both."""
        if not _WORD.fullmatch(word):
            raise InvalidRequest(f"verdict({word!r}): 1 to 64 letters, digits, _ . -")
        self._verdict = (word, sanitise(reason, REASON_MAX) or None)

    @contextmanager
    def finishing(self) -> Iterator[Connection]:
        """A transaction whose commit also ends the event as done, and its job. If the event is
        over already, everything in the block is rolled back and Conflict raised; LeaseLost if
        the job is another run's."""
        ended = False
        with self._job.finishing() as tx:
            yield tx
            # Last, as the job's own end: nobody who delivers the event again waits for the
            # block. Before the job's: rows are locked in this order everywhere.
            if not self.end(tx):
                raise Conflict("the event is over already; nothing was written")
            ended = True
        # Not so when the block abandoned its transaction.
        self.finished = ended

    def end(self, tx: Connection) -> bool:
        """Mark the event done, with its verdict. False: it was over already."""
        word, reason = self._verdict
        return inbox.end(tx, self._row.id, "done", verdict=word, reason=reason)
