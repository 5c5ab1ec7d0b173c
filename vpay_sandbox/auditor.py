"""Do the database, the rail and the receiver tell one story? Pure: books in, report out.

It shares no code with vpay_tasks: what a payment, an event and a delivery must look like is said
here a second time, from the project's documents.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from vpay_sandbox.books import Books, Delivery, Event, Payment
from vpay_sandbox.rail_audit import RailBooks, times
from vpay_sandbox.report import Finding, Report, Row
from vpay_sandbox.scenarios import Script

SUCCEEDED, FAILED = "payment_intent.succeeded", "payment_intent.payment_failed"
RAIL, RECEIVER = "rail.jsonl", "receiver.jsonl"

Pair = tuple[str, str, str]
"""A delivery: merchant, endpoint, event."""


def audit(
    books: Books, script: Script, endpoints: Collection[tuple[str, str]], *, asked: int
) -> Report:
    """Compares the three journals. `endpoints`: (merchant, id), each wants every event;
    `asked`: how many payments the application was told to make."""
    return _Audit(books, script, endpoints, asked).report()


class _Audit:
    def __init__(
        self, books: Books, script: Script, endpoints: Collection[tuple[str, str]], asked: int
    ) -> None:
        self.books, self.script, self.asked = books, script, asked
        self.endpoints: dict[str, list[str]] = defaultdict(list)
        for merchant, endpoint in endpoints:
            self.endpoints[merchant].append(endpoint)
        self.findings: list[Finding] = []
        self.rows: dict[str, Row] = {}
        self.settle_ms: list[float] = []
        self.post_ms: list[float] = []
        self.accepted_ms: list[float] = []
        self.rail = RailBooks(books)
        self.posts: dict[Pair, list[Mapping[str, Any]]] = defaultdict(list)
        for post in books.posts:
            pair = (str(post["merchant"]), str(post["endpoint"]), str(post["event"]))
            self.posts[pair].append(post)
        self.events: dict[str, list[Event]] = defaultdict(list)
        for event in books.events:
            self.events[event.about].append(event)
        self.delivered: set[Pair] = set()
        self.verified: set[Pair] = set()
        self.lost_pairs: set[Pair] = set()

    def report(self) -> Report:
        as_scripted = sum([self._payment(payment) for payment in self.books.payments])
        lost_payments = self._lost_payments()
        lost_events = self._events()
        self._deliveries()
        self._unknown_posts()
        for job in self.books.parked:
            self._find(
                "parked",
                f"job {job.id} ({job.kind} {job.payload})",
                f"is parked and waits for a person: {job.reason}: {job.error or 'no error'}",
                "vpay-tasks status",
            )
        return Report(
            payments=len(self.books.payments),
            as_scripted=as_scripted,
            events=len(self.books.events),
            delivered=len(self.delivered),
            signatures_ok=len(self.verified),
            lost=lost_payments + lost_events + len(self.lost_pairs),
            exposure=self.rail.exposure,
            kills=[kill for one in self.books.payments for kill in self.rail.kills(one)],
            findings=self.findings,
            rows=sorted(self.rows.values(), key=self._place),
            settle_ms=self.settle_ms,
            post_ms=self.post_ms,
            accepted_ms=self.accepted_ms,
        )

    def _find(self, kind: str, about: str, wrong: str, look: str = "") -> None:
        self.findings.append(Finding(kind, about, wrong, look))

    # Payments: the database's word against the script's, and against the rail's.

    def _payment(self, payment: Payment) -> bool:
        """True when it went as scripted, at the rail too."""
        about = _named(payment)
        scenario = self.script.by_name.get(payment.scenario or "")
        row, got = self._row(payment), _outcome(payment.state, payment.code, payment.contradicted)
        row.got[got] += 1
        before = len(self.findings)
        if payment.reference is None:
            self._find("payment", about, "was made and never confirmed", "application.jsonl")
            return False
        look = f"grep {payment.reference} {RAIL}; psql: charge {payment.charge}"
        if scenario is None:
            self._find("payment", about, f"its scenario {payment.scenario!r} is not scripted")
        elif row.expected != got:
            self._find("payment", about, f"the script says {row.expected}, it is {got}", look)
        for wrong in _contradictions(payment):
            self._find("payment", about, wrong, look)
        for wrong in self.rail.wrong(payment, scenario):
            self._find("rail", about, wrong, look)
        return len(self.findings) == before

    def _row(self, payment: Payment) -> Row:
        name = payment.scenario or "unscripted"
        scenario = self.script.by_name.get(name)
        expected = "?"
        if scenario is not None:
            expect = scenario.expect
            expected = _outcome(expect.state, expect.code or None, expect.contradicted)
        return self.rows.setdefault(name, Row(name, expected))

    def _place(self, row: Row) -> int:
        """The script's order: what is alike stands together there."""
        names = [*self.script.by_name]
        return names.index(row.scenario) if row.scenario in names else len(names)

    def _lost_payments(self) -> int:
        known = {one.reference: one for one in self.books.payments if one.reference}
        strange = sorted(self.rail.effects.keys() - known.keys())
        for reference in strange:
            self._find(
                "payment",
                f"reference {reference}",
                "the rail has a payment that the database does not have",
                f"grep {reference} {RAIL}",
            )
        unasked = sum(
            reference not in self.rail.effects and self._recorded(payment)
            for reference, payment in known.items()
        )
        seen = len(known) + len(strange)
        missing = max(self.asked - seen, 0)
        if missing:
            self._find(
                "payment",
                f"{missing} of {self.asked} payments",
                "the application was to make them, and neither the database nor the rail has them",
                "application.jsonl, application.log",
            )
        return len(strange) + unasked + missing

    def _recorded(self, payment: Payment) -> bool:
        """Whether the rail has it by the script."""
        scenario = self.script.by_name.get(payment.scenario or "")
        return scenario is None or scenario.recorded

    # Events: one per transition, saying what the database says.

    def _events(self) -> int:
        by_id = {payment.id: payment for payment in self.books.payments}
        for event in self.books.events:
            if event.about not in by_id:
                self._find("event", f"event {event.id}", f"no payment {event.about} exists")
        lost = 0
        for payment in by_id.values():
            due = {"succeeded": SUCCEEDED, "failed": FAILED}.get(payment.state or "")
            events = self.events.get(payment.id, [])
            if due is not None and not events:
                lost += 1
                self._find(
                    "event",
                    _named(payment),
                    f"it is {payment.state}, and no event tells of it: one {due} is lost",
                    f"psql: vpay.events by object_id {payment.id}",
                )
            if len(events) > (due is not None):
                ids = ", ".join(event.id for event in events)
                text = f"it is {payment.state}, and {len(events)} events tell of it: {ids}"
                self._find("event", _named(payment), text)
            for event in events:
                for wrong in _misreports(event, payment, due):
                    look = f"psql: the body of {event.id} in vpay.events"
                    self._find("event", f"event {event.id}", wrong, look)
                self._settled(event, payment)
        return max(lost, len(self._unknown_events()))

    def _settled(self, event: Event, payment: Payment) -> None:
        if payment.confirmed_at is not None:
            took = (event.created_at - payment.confirmed_at).total_seconds() * 1000
            self.settle_ms.append(took)
            self.rows[payment.scenario or "unscripted"].settle_ms.append(took)

    def _unknown_events(self) -> set[str]:
        """Events that a merchant was told of and the database does not have."""
        known = {event.id for event in self.books.events}
        return {event for _, _, event in self.posts if event not in known}

    # Deliveries: the database's word against the receiver's.

    def _deliveries(self) -> None:
        rows = {(d.merchant, d.endpoint, d.event): d for d in self.books.deliveries}
        scenarios = {
            payment.id: payment.scenario or "unscripted" for payment in self.books.payments
        }
        for event in self.books.events:
            row = self.rows.get(scenarios.get(event.about, ""))
            for endpoint in self.endpoints[event.merchant]:
                pair = (event.merchant, endpoint, event.id)
                self._delivery(pair, event, rows.pop(pair, None))
                if row is not None:
                    row.wanted += 1
                    row.verified += pair in self.verified
        for merchant, endpoint, identity in rows:
            about = f"delivery of {identity} to {merchant}/{endpoint}"
            self._find("delivery", about, "the database has it, and nobody asked for it")

    def _delivery(self, pair: Pair, event: Event, row: Delivery | None) -> None:
        merchant, endpoint, _ = pair
        posts = self.posts.get(pair, [])
        accepted = [post for post in posts if _is_2xx(post["status"])]
        wrong = [*_unverified(posts), *_other_bytes(posts, event)]
        if not accepted:
            wrong.append(f"the receiver accepted none of the {times(len(posts), 'post')} it got")
        if row is None:
            wrong.append("the database has no delivery of it")
        elif row.state != "delivered" or not accepted:
            attempts = times(row.attempts, "attempt")
            last = "no answer" if row.last_status is None else f"the answer {row.last_status}"
            wrong.append(f"the database says {row.state} after {attempts}, the last with {last}")
        if wrong:
            about = f"event {event.id} to {merchant}/{endpoint}"
            self._find("delivery", about, "; ".join(wrong), f"grep {event.id} {RECEIVER}")
        if accepted and row is not None and row.state == "delivered":
            self.delivered.add(pair)
            if not wrong:
                self.verified.add(pair)
        else:
            self.lost_pairs.add(pair)
        written = event.created_at.timestamp() * 1000
        for found, took in ((posts, self.post_ms), (accepted, self.accepted_ms)):
            if found:
                took.append(min(post["at"] for post in found) - written)

    def _unknown_posts(self) -> None:
        """What the receiver got and nobody can have meant."""
        unknown = self._unknown_events()
        told: dict[str, list[str]] = defaultdict(list)
        for pair, posts in self.posts.items():
            merchant, endpoint, event = pair
            if event in unknown:
                told[event].append(f"{merchant}/{endpoint}")
                if any(_is_2xx(post["status"]) for post in posts):
                    self.lost_pairs.add(pair)
            elif endpoint not in self.endpoints.get(merchant, ()):
                about, look = f"event {event} to {merchant}/{endpoint}", f"grep {event} {RECEIVER}"
                self._find("delivery", about, "was posted to an endpoint that nobody has", look)
        for event, whom in told.items():
            text = f"{' and '.join(whom)} got it, and the database has no such event"
            self._find("event", f"event {event}", text, f"grep {event} {RECEIVER}")


def _unverified(posts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    bad = [post for post in posts if post["stripe"] is not True or not post["verified"]]
    if bad:
        yield (
            f"{len(bad)} of {times(len(posts), 'post')} not verified: {bad[0]['why']}"
            " (do both sides have one secret?)"
        )


def _other_bytes(posts: Sequence[Mapping[str, Any]], event: Event) -> Iterator[str]:
    digest = hashlib.sha256(event.body).hexdigest()
    other = sum(post["sha256"] != digest for post in posts)
    if other:
        yield f"{times(other, 'post')} had other bytes than the database has stored"


def _named(payment: Payment) -> str:
    return f"payment {payment.id} (order {payment.order_number}, {payment.scenario})"


def _outcome(state: str | None, code: str | None, contradicted: bool) -> str:
    words = state or "never confirmed"
    words += f" {code}" if code else ""
    return words + (", contradicted" if contradicted else "")


def _contradictions(payment: Payment) -> Iterator[str]:
    """Where the intent and its charge don't say the same."""
    if (payment.charge_amount, payment.charge_currency) != (payment.amount, payment.currency):
        yield (
            f"asked for {payment.amount} {payment.currency}, charged"
            f" {payment.charge_amount} {payment.charge_currency}"
        )
    paid = payment.state == "succeeded"
    if paid != (payment.status == "succeeded"):
        yield f"its charge is {payment.state} and its intent {payment.status}"
    if payment.received != (payment.amount if paid else 0):
        yield f"its charge is {payment.state} and {payment.received} minor units were received"
    if payment.state == "failed" and payment.last_error != payment.code:
        yield f"its charge failed by {payment.code}, its intent says {payment.last_error}"


def _misreports(event: Event, payment: Payment, due: str | None) -> Iterator[str]:
    """Where an event's bytes don't say what the database says."""
    try:
        body = json.loads(event.body)
        thing = body["data"]["object"]
        error = thing["last_payment_error"]
        code = None if error is None else error["code"]
        told = {
            "id": (body["id"], event.id),
            "type": (body["type"], due),
            "type of the row": (event.type, due),
            "merchant": (body["merchant"], payment.merchant),
            "merchant of the row": (event.merchant, payment.merchant),
            "object id": (thing["id"], payment.id),
            "amount": (thing["amount"], payment.amount),
            "currency": (thing["currency"], payment.currency),
            "amount received": (thing["amount_received"], payment.received),
            "status": (thing["status"], payment.status),
            "failure code": (code, payment.code),
            "latest charge": (thing["latest_charge"], payment.charge),
        }
    except (ValueError, KeyError, TypeError) as error_:
        yield f"its stored body can't be read: {type(error_).__name__}: {error_}"
        return
    for what, (said, is_) in told.items():
        if said != is_:
            yield f"{what}: it says {said}, the database {is_}"


def _is_2xx(status: object) -> bool:
    return isinstance(status, int) and 200 <= status < 300
