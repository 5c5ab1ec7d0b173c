"""The three journals as an auditor reads them: the database's rows, the rail's and the
receiver's lines; and whom the demo killed. Plain SQL and JSON: nothing of vpay_tasks is imported
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import class_row

from vpay_sandbox import journal

PAYMENTS = """
SELECT i.id, i.merchant_id AS merchant, i.status, i.amount, i.currency,
       i.amount_received AS received, i.last_payment_error AS last_error,
       i.metadata->>'order' AS order_number, i.metadata->>'scenario' AS scenario,
       c.id AS charge, c.provider_reference_id AS reference, c.state, c.failure_code AS code,
       c.contradicted_at IS NOT NULL AS contradicted,
       c.amount AS charge_amount, c.currency AS charge_currency, c.created_at AS confirmed_at,
       (SELECT count(*)
        FROM vpay.provider_requests AS r
        WHERE r.charge_id = c.id AND r.class IS NULL) AS unanswered
FROM vpay.payment_intents AS i
LEFT JOIN vpay.charges AS c ON c.payment_intent_id = i.id
ORDER BY i.created_at, i.id
"""
EVENTS = """
SELECT id, type, object_id AS about, merchant_id AS merchant, created_at, body
FROM vpay.events
ORDER BY seq
"""
DELIVERIES = """
SELECT event_id AS event, merchant_id AS merchant, endpoint_id AS endpoint, state, attempts,
       last_status
FROM vpay.webhook_deliveries
ORDER BY created_at, id
"""
PARKED = """
SELECT id, kind, payload::text AS payload, dead_reason AS reason, last_error AS error
FROM vpay.jobs
WHERE parked_at IS NOT NULL
ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class Payment:
    """An intent and its charge; what is the charge's is None when there is none. `unanswered`:
    submissions whose answer nobody wrote down."""

    id: str
    merchant: str
    status: str
    amount: int
    currency: str
    received: int
    last_error: str | None
    order_number: str | None
    scenario: str | None
    charge: str | None
    reference: str | None
    state: str | None
    code: str | None
    contradicted: bool
    charge_amount: int | None
    charge_currency: str | None
    confirmed_at: datetime | None
    unanswered: int


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    type: str
    about: str
    merchant: str
    created_at: datetime
    body: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    event: str
    merchant: str
    endpoint: str
    state: str
    attempts: int
    last_status: int | None


@dataclass(frozen=True, slots=True)
class ParkedJob:
    id: int
    kind: str
    payload: str
    reason: str
    error: str | None


Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Books:
    """`calls`, `answers`, `effects`: the rail's; `posts`: the receiver's, in the order of their
    answers; `kills`: whom the demo killed, and inside which call."""

    payments: Sequence[Payment]
    events: Sequence[Event]
    deliveries: Sequence[Delivery]
    parked: Sequence[ParkedJob]
    calls: Lines
    answers: Lines
    effects: Lines
    posts: Lines
    kills: Lines


def read(database_url: str, rail: Path, receiver: Path, kills: Path) -> Books:
    """The database in one snapshot, then the files of the stubs and of who killed."""
    with psycopg.connect(database_url, application_name="sandbox auditor") as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        payments = connection.cursor(row_factory=class_row(Payment)).execute(PAYMENTS).fetchall()
        events = connection.cursor(row_factory=class_row(Event)).execute(EVENTS).fetchall()
        made = connection.cursor(row_factory=class_row(Delivery)).execute(DELIVERIES).fetchall()
        parked = connection.cursor(row_factory=class_row(ParkedJob)).execute(PARKED).fetchall()
    return Books(
        payments=payments,
        events=events,
        deliveries=made,
        parked=parked,
        calls=journal.read(rail, "request"),
        answers=journal.read(rail, "answer"),
        effects=journal.read(rail, "effect"),
        posts=journal.read(receiver, "delivery"),
        kills=journal.read(kills, "kill"),
    )
