"""Every promise asked at once, in one snapshot."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from tests.invariants import journals, secrets
from tests.invariants.overdue import Bounds, overdue

NAMES: Final = tuple(f"I{number}" for number in range(1, 15))

Lines = Sequence[Mapping[str, Any]]
"""A journal's entries."""


@dataclass(frozen=True)
class Evidence:
    """What is known beside the database; whatever is left out is not compared.

    `rail`, `receivers`: all lines of the stubs' journals. `producer`: lines with `order`, `what`
    (intent or charge), `id` and `how` (committed, ambiguous or refused). `vendors`: lines with
    `vendor`, `account`, `event` and the `status` that the sender was answered; `grants`: how
    often each such event has had its effect. `endpoints`: (merchant, id) of those that want every
    event; `rungs`: of the ladder of their deliveries.
    `bounds`: of I7; None does not look. `canaries`: by name; grepped in the database's texts and
    in the files of `artefacts`. `at_rest`: everything was drained, so nothing may wait; `ended`:
    and our processes are gone, so none of their sessions may be there.
    """

    rail: Lines | None = None
    receivers: Lines | None = None
    producer: Lines | None = None
    vendors: Lines | None = None
    grants: Mapping[tuple[str, str, str], int] | None = None
    endpoints: Collection[tuple[str, str]] = ()
    rungs: int = 0
    bounds: Bounds | None = None
    canaries: Mapping[str, str] | None = None
    artefacts: Path | None = None
    at_rest: bool = False
    ended: bool = False


def check(connection: psycopg.Connection[Any], **evidence: Any) -> dict[str, list[str]]:
    """What breaks each promise; `evidence` is Evidence's fields."""
    known = Evidence(**evidence)
    found: dict[str, list[str]] = {name: [] for name in NAMES}
    with _snapshot(connection):
        for name, sentences in _asked(connection, known):
            found[name] += sentences
        for name, question in QUESTIONS.items():
            found[name] += question(connection, known)
    return found


@contextmanager
def _snapshot(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Of one moment, or what is moving while we read would look torn. A caller's own transaction
    is taken as it is."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        yield
        return
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


@dataclass(frozen=True)
class Statement:
    """One of checks.sql; its parameters are named."""

    name: str
    text: str

    @property
    def invariant(self) -> str:
        return self.name.partition("_")[0].upper()

    def ask(self, connection: psycopg.Connection[Any], params: Mapping[str, Any]) -> list[str]:
        """The sentences about what breaks it."""
        # A per cent sign is a LIKE's, unless it names a parameter.
        query = re.sub(r"%(?!\(\w+\)s)", "%%", self.text)
        return [row[0] for row in connection.execute(query.encode(), params)]


def statements() -> list[Statement]:
    parts = re.split(r"^-- name: (\w+)$", CHECKS.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return [Statement(*one) for one in zip(parts[::2], parts[1::2], strict=True)]


CHECKS: Final = Path(__file__).with_name("checks.sql")


def _asked(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[tuple[str, list[str]]]:
    params = {
        "at_rest": known.at_rest,
        "ended": known.ended,
        "merchants": [merchant for merchant, _ in known.endpoints],
        "endpoints": [endpoint for _, endpoint in known.endpoints],
        "rungs": known.rungs,
    }
    for statement in statements():
        yield statement.invariant, statement.ask(connection, params)


def _i1(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[str]:
    """Whatever a producer saw the COMMIT of is there, what it was refused is not; what it can't
    know may be either."""
    if known.producer is not None:
        rows = connection.execute(
            "SELECT id FROM vpay.payment_intents UNION ALL SELECT id FROM vpay.charges"
        )
        yield from journals.lost_commits(known.producer, {row[0] for row in rows})


def _i4(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[str]:
    """What an event tells is what its charge became; its bytes are read as a merchant does."""
    rows = connection.execute(
        "SELECT e.id, e.type, e.object_id, e.body, c.id, c.amount, c.currency, c.failure_code"
        " FROM vpay.events AS e JOIN vpay.charges AS c ON c.payment_intent_id = e.object_id"
        " WHERE e.type IN (%s, %s)",
        (journals.SUCCEEDED, journals.FAILED),
    )
    for row in rows:
        yield from journals.misreports(journals.Told(*row))


def _i5(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[str]:
    """What is delivered was answered with a 2xx, by the receiver's own word; and no receiver
    has what was never committed."""
    if known.receivers is not None:
        rows = connection.execute(
            "SELECT merchant_id, endpoint_id, event_id, state FROM vpay.webhook_deliveries"
        )
        states = {(row[0], row[1], row[2]): row[3] for row in rows}
        yield from journals.misdelivered(known.receivers, states)


def _i6(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[str]:
    """All POSTs of one event have the stored bytes, and every one of them verifies."""
    if known.receivers is not None:
        rows = connection.execute(
            "SELECT id, encode(sha256(body), 'hex') FROM vpay.events WHERE body_rev = 1"
        )
        yield from journals.other_bytes(known.receivers, dict(rows.fetchall()))


def _i7(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[str]:
    """Nothing is late by more than the settings and the margin allow."""
    if known.bounds is not None:
        yield from known.bounds.broken_by(overdue(connection))


def _i10(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[str]:
    """One reference, one effect at the rail; and no effect that the database does not know."""
    if known.rail is not None:
        rows = connection.execute("SELECT provider_reference_id, state FROM vpay.charges")
        yield from journals.effects(known.rail, dict(rows.fetchall()))


def _i11(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[str]:
    """A vendor that was answered 2xx is believed by a row; its effect happens at most once, and
    for a row that is done exactly once."""
    rows = connection.execute("SELECT vendor, account, event_id, state FROM vpay.inbox_events")
    states = {(row[0], row[1], row[2]): row[3] for row in rows}
    if known.vendors is not None:
        yield from journals.unkept(known.vendors, states)
    if known.grants is not None:
        yield from journals.misgranted(known.grants, states)


def _i13(connection: psycopg.Connection[Any], known: Evidence) -> Iterator[str]:
    """No secret is readable in the database or in what was logged."""
    if known.canaries is not None:
        yield from secrets.in_database(connection, known.canaries)
        if known.artefacts is not None:
            yield from secrets.in_files(known.artefacts, known.canaries)


Question = Callable[[psycopg.Connection[Any], Evidence], Iterator[str]]
QUESTIONS: Final[Mapping[str, Question]] = {
    "I1": _i1,
    "I4": _i4,
    "I5": _i5,
    "I6": _i6,
    "I7": _i7,
    "I10": _i10,
    "I11": _i11,
    "I13": _i13,
}
