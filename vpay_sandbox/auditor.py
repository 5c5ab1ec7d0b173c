"""Do the database, the rail and the receiver tell one story? Pure: books in, report out.

It shares no code with vpay_tasks: what a payment, an event and a delivery must look like is said
here a second time, from the project's documents.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from vpay_sandbox.books import Books, Delivery, Event, Payment
from vpay_sandbox.report import Finding, Report, Row
from vpay_sandbox.scenarios import Expect, Script

# Digits behind the point, of what the sandbox's rails take.
EXPONENTS = {"EUR": 2, "USD": 2, "XAF": 0, "XOF": 0}
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
        self.effects: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for effect in books.effects:
            self.effects[str(effect["reference"])].append(effect)
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
            findings=self.findings,
            rows=[*self.rows.values()],
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
        row = self._row(payment, None if scenario is None else scenario.expect)
        row.got[_outcome(payment.state, payment.code)] += 1
        before = len(self.findings)
        if payment.reference is None:
            self._find("payment", about, "was made and never confirmed", "application.jsonl")
            return False
        look = f"grep {payment.reference} {RAIL}; psql: charge {payment.charge}"
        if scenario is None:
            self._find("payment", about, f"its scenario {payment.scenario!r} is not scripted")
        else:
            wanted, got = row.expected, _outcome(payment.state, payment.code)
            if wanted != got:
                self._find("payment", about, f"the script says {wanted}, it is {got}", look)
        for wrong in _contradictions(payment):
            self._find("payment", about, wrong, look)
        for wrong in self._at_the_rail(payment):
            self._find("rail", about, wrong, look)
        return len(self.findings) == before

    def _row(self, payment: Payment, expect: Expect | None) -> Row:
        name = payment.scenario or "unscripted"
        expected = "?" if expect is None else _outcome(expect.state, expect.code or None)
        return self.rows.setdefault(name, Row(name, expected))

    def _at_the_rail(self, payment: Payment) -> Iterator[str]:
        effects = self.effects.get(payment.reference or "", [])
        prompts = [one for one in effects if one["effect"] == "prompt"]
        moves = [one for one in effects if one["effect"] == "moved"]
        if len(prompts) != 1:
            yield (
                f"the rail does not have its reference {payment.reference}"
                if not prompts
                else f"the rail asked the payer {_times(len(prompts), 'time')} for one reference"
            )
        if any(one["scenario"] != payment.scenario for one in prompts):
            yield f"the rail played {prompts[0]['scenario']}: it was asked for another payer"
        due = 1 if payment.state == "succeeded" else 0
        if len(moves) != due:
            yield (
                f"the rail moved the money {_times(len(moves), 'time')} for the one reference"
                f" {payment.reference}; a payment that is {payment.state} means {due}"
            )
        said = [(one["amount"], one["currency"]) for one in prompts]
        said += [(one["moved_amount"], one["currency"]) for one in moves]
        for amount, currency in dict.fromkeys(said):
            if currency != payment.currency or _minor(amount, currency) != payment.amount:
                yield (
                    f"the rail has {amount} {currency} for it; the database has"
                    f" {payment.amount} minor units of {payment.currency}"
                )

    def _lost_payments(self) -> int:
        known = {payment.reference for payment in self.books.payments if payment.reference}
        strange = sorted(self.effects.keys() - known)
        for reference in strange:
            self._find(
                "payment",
                f"reference {reference}",
                "the rail has a payment that the database does not have",
                f"grep {reference} {RAIL}",
            )
        unasked = sum(1 for reference in known if reference not in self.effects)
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
            wrong.append(f"the receiver accepted none of the {_times(len(posts), 'post')} it got")
        if row is None:
            wrong.append("the database has no delivery of it")
        elif row.state != "delivered" or not accepted:
            attempts = _times(row.attempts, "attempt")
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
        for found, times in ((posts, self.post_ms), (accepted, self.accepted_ms)):
            if found:
                times.append(min(post["at"] for post in found) - written)

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
            f"{len(bad)} of {_times(len(posts), 'post')} not verified: {bad[0]['why']}"
            " (do both sides have one secret?)"
        )


def _other_bytes(posts: Sequence[Mapping[str, Any]], event: Event) -> Iterator[str]:
    digest = hashlib.sha256(event.body).hexdigest()
    other = sum(post["sha256"] != digest for post in posts)
    if other:
        yield f"{_times(other, 'post')} had other bytes than the database has stored"


def _times(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _named(payment: Payment) -> str:
    return f"payment {payment.id} (order {payment.order_number}, {payment.scenario})"


def _outcome(state: str | None, code: str | None) -> str:
    return f"{state or 'never confirmed'}" + (f" {code}" if code else "")


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


def _minor(amount: object, currency: object) -> int | None:
    """Minor units of what a rail writes; None when it is no whole number of them."""
    try:
        scaled = Decimal(str(amount)).scaleb(EXPONENTS[str(currency)])
    except (InvalidOperation, KeyError):
        return None
    return int(scaled) if scaled.is_finite() and scaled == scaled.to_integral_value() else None


def _is_2xx(status: object) -> bool:
    return isinstance(status, int) and 200 <= status < 300
