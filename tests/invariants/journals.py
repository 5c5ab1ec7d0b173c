"""What the producer, the rail, the receivers and the vendors kept, against the database. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SUCCEEDED: Final = "payment_intent.succeeded"
FAILED: Final = "payment_intent.payment_failed"

Lines = Sequence[Mapping[str, Any]]
Delivery = tuple[str, str, str]
"""merchant, endpoint, event"""
Fact = tuple[str, str, str]
"""vendor, account, event"""


def lost_commits(producer: Lines, kept: Collection[str]) -> Iterator[str]:
    """I1: what was committed exists, and what was refused does not. An ambiguous commit may have
    gone either way, and what a producer that was killed did not write down is nobody's claim."""
    for line in producer:
        about = f"order {line['order']}: the {line['what']} {line['id']}"
        if line["how"] == "committed" and line["id"] not in kept:
            yield f"{about} was committed and is gone"
        if line["how"] == "refused" and line["id"] in kept:
            yield f"{about} was refused and is there"


@dataclass(frozen=True, slots=True)
class Told:
    """An event about a payment, and the charge that it tells of."""

    event: str
    type: str
    intent: str
    body: bytes
    charge: str
    amount: int
    currency: str
    code: str | None


def misreports(told: Told) -> Iterator[str]:
    """I4: where an event's bytes don't say what became of its charge."""
    paid = told.type == SUCCEEDED
    try:
        body = json.loads(told.body)
        about = body["data"]["object"]
        error = about["last_payment_error"]
        said = {
            "id": (body["id"], told.event),
            "type": (body["type"], told.type),
            "object": (about["id"], told.intent),
            "status": (about["status"], "succeeded" if paid else "requires_payment_method"),
            "amount": (about["amount"], told.amount),
            "amount received": (about["amount_received"], told.amount if paid else 0),
            "currency": (about["currency"], told.currency),
            "latest charge": (about["latest_charge"], told.charge),
            "failure code": (error and error["code"], None if paid else told.code),
        }
    except (ValueError, KeyError, TypeError) as odd:
        yield f"event {told.event} can't be read: {type(odd).__name__}"
        return
    for what, (has, wanted) in said.items():
        if has != wanted:
            yield f"event {told.event} says {what} {has!r}, and it is {wanted!r}"


def misdelivered(receivers: Lines, states: Mapping[Delivery, str]) -> Iterator[str]:
    """I5: for what is delivered the receiver has answered a 2xx, and it was told of nothing that
    does not exist. `states`: of each delivery in the database."""
    good = {_pair(line) for line in _posts(receivers) if is_2xx(line["status"])}
    told = {_pair(line) for line in _posts(receivers)}
    for pair, state in states.items():
        if state == "delivered" and pair not in good:
            about = f"event {pair[2]} to {pair[0]}/{pair[1]}"
            yield f"{about} is delivered; its receiver answered no 2xx"
    for merchant, endpoint, event in sorted(told - states.keys()):
        yield f"{merchant}/{endpoint} was posted event {event}, of which there is no delivery"


def other_bytes(receivers: Lines, digests: Mapping[str, str]) -> Iterator[str]:
    """I6: every POST has the stored bytes (`digests`: of events that were never redacted), and
    its signature verifies by the receiver's own libraries."""
    seen: dict[str, set[str]] = defaultdict(set)
    for line in _posts(receivers):
        seen[str(line["event"])].add(str(line["sha256"]))
        if not line["verified"]:
            yield f"a post of event {line['event']} did not verify: {line['why']}"
    for event, hashes in seen.items():
        if event in digests and hashes != {digests[event]}:
            yield f"event {event} was posted with {len(hashes)} bodies, not only the stored one"


def effects(rail: Lines, states: Mapping[str, str]) -> Iterator[str]:
    """I10: per reference the rail asks its payer at most once and moves money at most once; it
    has no reference that we don't, and what succeeded was paid. `states`: of each charge."""
    counted = Counter(
        (str(line["reference"]), str(line["effect"])) for line in rail if line["kind"] == "effect"
    )
    for (reference, effect), times in counted.items():
        if times > 1:
            yield f"the rail has had the effect {effect!r} {times} times for reference {reference}"
        if reference not in states:
            yield f"the rail has the reference {reference}, and no charge has"
    for reference, state in states.items():
        if state == "succeeded" and not counted[reference, "moved"]:
            yield f"the charge with reference {reference} succeeded, and the rail moved nothing"


def exposure(rail: Lines) -> int:
    """Submissions beyond the first of a reference. None of them may have an effect of its own,
    but a rail that ignored references would have made each a second prompt: counted apart."""
    submits = Counter(
        str(line["reference"])
        for line in rail
        if line["kind"] == "request" and line["op"] == "submit"
    )
    return sum(times - 1 for times in submits.values())


def unkept(vendors: Lines, states: Mapping[Fact, str]) -> Iterator[str]:
    """I11: a 2xx means that the row was committed."""
    for line in vendors:
        fact = (line["vendor"], line["account"], line["event"])
        if is_2xx(line["status"]) and fact not in states:
            yield f"event {fact[2]} of {fact[0]} was answered {line['status']} and is not kept"


def misgranted(grants: Mapping[Fact, int], states: Mapping[Fact, str]) -> Iterator[str]:
    """I11: an effect for each row that is done, and never two."""
    for fact, times in grants.items():
        if times > 1:
            yield f"event {fact[2]} of {fact[0]} had its effect {times} times"
        if fact not in states:
            yield f"event {fact[2]} of {fact[0]} had an effect and is not kept"
    for fact, state in states.items():
        if state == "done" and not grants.get(fact):
            yield f"event {fact[2]} of {fact[0]} is done and had no effect"


def is_2xx(status: object) -> bool:
    return isinstance(status, int) and 200 <= status <= 299


def _posts(receivers: Lines) -> Iterable[Mapping[str, Any]]:
    # One that was answered without a look has neither an event nor a reason to refuse it.
    return (
        line
        for line in receivers
        if line["kind"] == "delivery" and (line["event"] is not None or line["why"])
    )


def _pair(line: Mapping[str, Any]) -> Delivery:
    return str(line["merchant"]), str(line["endpoint"]), str(line["event"])
