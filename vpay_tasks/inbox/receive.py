"""Taking a vendor's delivery in: verified, kept, and only then answered.

`receive` is all of it for a thread; an event loop calls `take_in` in a thread, and then waits
for the verdict without one. A 2xx is never said before the commit that keeps the event.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as NoVerdict
from dataclasses import dataclass, field, replace
from typing import Final

from vpay_tasks.core import inbox as rules
from vpay_tasks.errors import InvalidRequest, NotFound, Severity, VpayError
from vpay_tasks.inbox.arm import arm, rearm
from vpay_tasks.inbox.vendors import Described, Vendor
from vpay_tasks.inbox.verify import Headers, HeadersLike, Reason, Refused
from vpay_tasks.inbox.watch import Watch
from vpay_tasks.store import inbox, patience
from vpay_tasks.store.db import Database
from vpay_tasks.store.inbox import Keeping, Kept
from vpay_tasks.telemetry import alert, count, report_failure, say

BODY_MAX: Final = 256 * 1024
"""Bytes of a delivery. The largest that a vendor documents is 256 KiB; the table refuses more."""
PATIENCE_MIN_S: Final = 0.2
"""For keeping what took most of its time to arrive. Lower: a slow sender's events are never
kept; higher: its answer comes later than promised."""

PENDING: Final = "PENDING"
TELL_EVERY_S: Final = 60.0
"""Between two lines about a vendor's deliveries that are refused for one reason."""

_ACCOUNT: Final = re.compile(r"[A-Za-z0-9._-]{0,64}")


class TooLarge(InvalidRequest):
    http = 413


@dataclass(frozen=True)
class Answer:
    """What the vendor is to be answered: any framework can say it. A status below 300 means
    that the event is kept; from 500 on the vendor must send it again."""

    status: int
    content: Mapping[str, object]
    content_type: str = "application/json"

    @property
    def body(self) -> bytes:
        return json.dumps(self.content, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Waiting:
    """A kept event whose verdict may still come in time."""

    row_id: int
    reference: str | None
    until: float
    """The instant of `time.monotonic()` at which it is to be answered at the latest."""

    def in_time(self, end: inbox.End) -> Answer:
        return _answer(self.reference, end)

    def pending(self) -> Answer:
        return _answer(self.reference, None)


@dataclass
class Inbox:
    """Takes deliveries in; one per process, made by `wiring.inbox`."""

    db: Database
    vendors: Mapping[str, Vendor]
    clock: Callable[[], float] = time.time
    """Unix seconds, compared with the times that vendors sign."""
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = Watch(self.db)
        self._down = False
        self._refused_at: dict[tuple[str, Reason], float] = {}

    def receive(
        self,
        body: bytes,
        headers: HeadersLike,
        vendor: str,
        account: str = "",
        *,
        arrived: float | None = None,
    ) -> Answer:
        """Verify the raw `body`, keep it, have it granted, and answer: the verdict, if there is
        one within the settings' `windows.inbox_answer` seconds from `arrived` (an instant of
        `time.monotonic()`; now, unless said), else 200 and `PENDING`.

        `headers` is a mapping or pairs, names in any case. What the sender or Postgres did
        wrong is an answer, too (400, 401, 404, 413, 503): only a bug raises. A Postgres that
        takes what is sent and never answers holds the calling thread: bound that from outside,
        as the web app does.
        """
        try:
            taken = self.take_in(body, headers, vendor, account, arrived=arrived)
        except VpayError as error:
            self._report(error)
            return Answer(error.http, {"error": error.word()})
        self._down = False
        if isinstance(taken, Answer):
            return taken
        with self.watch.waiting(taken.row_id) as future:
            try:
                return taken.in_time(future.result(max(0.0, taken.until - time.monotonic())))
            except NoVerdict:
                return taken.pending()

    def take_in(
        self,
        body: bytes,
        headers: HeadersLike,
        vendor: str,
        account: str = "",
        *,
        arrived: float | None = None,
    ) -> Answer | Waiting:
        """`receive` up to the wait for a verdict; raises what the sender or Postgres did wrong."""
        begun = time.monotonic() if arrived is None else arrived
        until = begun + self.db.windows.inbox_answer
        try:
            given = self._verified(body, headers, vendor, account)
        except Refused as refused:
            self._tell_refused(vendor, account, refused.reason)
            raise
        kept = self._keep(given, until)
        if kept.state == "accepted":
            return Waiting(kept.id, kept.reference, until)
        return _answer(kept.reference, inbox.End(kept.state, kept.verdict, kept.reason))

    def close(self) -> None:
        """End the reader of verdicts; what is kept stays kept."""
        self.watch.close()

    def _verified(self, body: bytes, headers: HeadersLike, name: str, account: str) -> Keeping:
        vendor = self.vendors.get(name)
        if vendor is None or not _ACCOUNT.fullmatch(account):
            raise NotFound("no such inbox")
        if len(body) > BODY_MAX:
            raise TooLarge(f"a body of {len(body)} bytes, {BODY_MAX} at most")
        read = Headers(headers)
        verified_by = vendor.verify(read, body, account, now=self.clock())
        said = vendor.describe(read, body)
        return _keeping(vendor, account, said, body, verified_by)

    def _tell_refused(self, vendor: str, account: str, reason: Reason) -> None:
        """Count it; a line a minute is enough to see a wrong secret or clock, and a stranger
        who sends a thousand writes no thousand lines."""
        count(f"inbox_refused_{reason.value}")
        now = time.monotonic()
        if now - self._refused_at.get((vendor, reason), float("-inf")) < TELL_EVERY_S:
            return
        self._refused_at[vendor, reason] = now
        say(
            Severity.WARN,
            "deliveries of a vendor are refused",
            action="inbox_refused",
            vendor=vendor,
            account=account,
            reason=reason.value,
        )

    def _report(self, error: VpayError) -> None:
        """An outage is one alert, not one for each delivery."""
        down = error.http >= 500
        if down and not self._down:
            report_failure(error, "deliveries can't be kept", action="inbox_not_kept")
        self._down = self._down or down

    def _keep(self, given: Keeping, until: float) -> Kept:
        left = max(PATIENCE_MIN_S, until - time.monotonic())
        with self.db.transaction(patience=left) as tx:
            patience.wait_at_most(tx, left)
            kept = inbox.keep(tx, given)
            if kept.state == "dead" and kept.reason != inbox.UNPARSEABLE:
                if rearm(tx, kept.id, ["dead"]):
                    kept = replace(kept, state="accepted")
            elif kept.state in ("accepted", "retrying"):
                arm(tx, kept.id, kept.lane)
        _tell(given, kept)
        return kept


def _keeping(
    vendor: Vendor, account: str, said: Described, body: bytes, verified_by: str
) -> Keeping:
    return Keeping(
        vendor=vendor.name,
        account=account,
        event_id=said.event_id,
        type=said.type,
        reference=said.reference,
        lane=rules.lane(vendor.name, account, said.reference, said.event_id),
        verified_by=verified_by,
        digest=hashlib.sha256(body).digest(),
        body=body,
        unparseable=said.unparseable is not None,
    )


def _tell(given: Keeping, kept: Kept) -> None:
    """Count it, and alert on what a person must see: each once, at its transition."""
    count("inbox_received")
    fields = {
        "inbox_id": kept.id,
        "vendor": given.vendor,
        "account": given.account,
        "event_id": given.event_id,
    }
    if kept.deliveries > 1:
        count("inbox_duplicates")
    elif kept.state == "dead":
        alert(
            Severity.ERROR,
            "a vendor's event can't be read and is dead",
            **{"action": "inbox_dead", **fields, "reason": kept.reason},
        )
    if kept.conflicts == 1 and not kept.same_body:
        alert(
            Severity.ERROR,
            "a vendor's event came again with another body; the first one stands",
            **{"action": "inbox_conflict", **fields},
        )


def _answer(reference: str | None, end: inbox.End | None) -> Answer:
    """200: the event is kept. Why a grant failed is nobody's business out there."""
    state, reason = PENDING, None
    if end is not None and end.state == "done":
        state, reason = end.verdict or "DONE", end.reason
    elif end is not None and end.state in ("ignored", "dead"):
        state = end.state.upper()
        reason = inbox.UNPARSEABLE if end.reason == inbox.UNPARSEABLE else None
    told = {"reference": reference, "state": state, "accepted": True}
    return Answer(200, {**told, "reason": reason} if reason else told)
