"""A process that was taken over has the rights of its role, and tries what would pay somebody."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.e2e.test_roles import logins
from tests.payment_kit import make_charge
from tests.webhooks.world import append_many
from vpay_tasks import payments
from vpay_tasks.core.charge import State
from vpay_tasks.errors import NotFound
from vpay_tasks.store import events
from vpay_tasks.store.db import Database

__all__ = ["logins"]

PERSON = {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+46 733 123 601"}


@pytest.fixture
def told(logins: dict[str, str], database: Database) -> str:
    """An event that names a person, with a delivery that was made and its attempt."""
    with database.transaction() as tx:
        made = payments.create_customer(
            tx,
            "acme",
            name=PERSON["name"],
            email=PERSON["email"],
            phone=PERSON["phone"],
            metadata={"plan": "gold"},
        )
    _run(
        database,
        "UPDATE vpay.events SET fanout_state = 'done', list_seq = seq",
        "INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id, state,"
        " ended_at) SELECT 'del_1', id, merchant_id, 'main', 'delivered', now() FROM vpay.events",
        "INSERT INTO vpay.delivery_attempts (begun_at, duration_ms, attempt, counted,"
        " delivery_id, key_ids, excerpt) VALUES (now(), 1, 1, true, 'del_1', '{}', 'ok')",
        "INSERT INTO vpay.inbox_events (vendor, event_id, type, lane, verified_by, body, digest)"
        " VALUES ('stripe', 'evt_9', 't', 'l', 'key', '{}', sha256('{}'))",
    )
    return made.id


def _run(database: Database, *statements: str) -> None:
    with database.connection() as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _outcomes(url: str, statements: dict[str, Any]) -> dict[str, str]:
    """What Postgres said to each statement: its error's name, or how many rows were changed."""
    said = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for statement, parameters in statements.items():
            try:
                done = connection.execute(statement.encode(), parameters)
                said[statement] = f"{done.rowcount} rows"
            except psycopg.Error as error:
                said[statement] = type(error).__name__
    return said


REWRITE = "UPDATE vpay.events SET body = %(body)s, body_rev = body_rev + 1, redacted = true"


def test_a_worker_can_not_rewrite_what_was_told(logins: dict[str, str], told: str) -> None:
    """Rows that it must be able to write, so it is a trigger that refuses."""
    with psycopg.connect(logins["worker"], autocommit=True) as connection:
        ((body,),) = connection.execute("SELECT body FROM vpay.events").fetchall()
    assert b"Ada" in body
    lies = [
        body.replace(b"Ada Lovelace", b"Mallory"),
        body.replace(b"customer.created", b"customer.deleted"),
        body.replace(b'"acme"', b'"other"'),
        body.replace(b'"deleted":false', b'"deleted":true'),
        body.replace(b'"deleted":false', b'"deleted":false,"amount":1'),
        events_without(body).replace(b'"metadata":{}', b'"metadata":{"plan":"gold"}'),
        b"{}",
    ]
    assert len({*lies, body}) == len(lies) + 1
    for lie in lies:
        assert _outcomes(logins["worker"], {REWRITE: {"body": lie}}) == {REWRITE: "CheckViolation"}
    tries = {
        "UPDATE vpay.events SET body = %(body)s": {"body": events_without(body)},
        "UPDATE vpay.events SET body_rev = 9": None,
        "UPDATE vpay.events SET redacted = true, body_rev = 0": None,
    }
    assert set(_outcomes(logins["worker"], tries).values()) == {"CheckViolation"}
    assert set(
        _outcomes(
            logins["worker"],
            {
                "UPDATE vpay.events SET merchant_id = 'other'": None,
                "UPDATE vpay.events SET type = 'customer.deleted'": None,
                "UPDATE vpay.events SET created_at = now() - interval '1 year'": None,
            },
        ).values()
    ) == {"InsufficientPrivilege"}


def events_without(body: bytes) -> bytes:
    """`body` as an erasure leaves it."""
    for word in (*PERSON.values(),):
        body = body.replace(f'"{word}"'.encode(), b"null")
    return body.replace(b'{"plan":"gold"}', b"{}")


def test_a_worker_can_not_hide_what_was_told_or_taken_in(logins: dict[str, str], told: str) -> None:
    tries = [
        "DELETE FROM vpay.delivery_attempts",
        "DELETE FROM vpay.webhook_deliveries",
        "DELETE FROM vpay.events",
        "DELETE FROM vpay.inbox_events",
    ]
    said = _outcomes(logins["worker"], dict.fromkeys(tries))
    assert set(said.values()) == {"CheckViolation"}, said
    with (
        psycopg.connect(logins["worker"]) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("ALTER TABLE vpay.events DISABLE TRIGGER ALL")


def test_a_worker_can_not_take_money_back_or_twice(
    logins: dict[str, str], database: Database
) -> None:
    paid = make_charge(database, state=State.SUCCEEDED)
    tries = {
        "UPDATE vpay.charges SET state = 'failed', failure_code = 'payer_declined'": None,
        "UPDATE vpay.charges SET state = 'pending', provider_txn_id = NULL": None,
        "UPDATE vpay.charges SET amount = amount + 1": None,
        "UPDATE vpay.charges SET provider_reference_id = 'x'": None,
        "UPDATE vpay.charges SET provider_txn_id = 'another'": None,
        "UPDATE vpay.payment_intents SET amount = amount + 1": None,
        "UPDATE vpay.payment_intents SET merchant_id = 'mallory'": None,
    }
    said = _outcomes(logins["worker"], tries)
    assert set(said.values()) == {"CheckViolation"}, said
    gone = ["DELETE FROM vpay.charges", "DELETE FROM vpay.payment_intents"]
    said = _outcomes(logins["worker"], dict.fromkeys(gone))
    assert set(said.values()) == {"InsufficientPrivilege"}, said
    assert paid


def test_a_dispatcher_reads_no_payload_no_payer_and_no_event(
    logins: dict[str, str], told: str
) -> None:
    tries = [
        "SELECT payload FROM vpay.jobs",
        "SELECT * FROM vpay.jobs",
        "UPDATE vpay.jobs SET payload = '{}'",
        "UPDATE vpay.jobs SET kind = 'another'",
        "UPDATE vpay.jobs SET queue = 'another'",
        "DELETE FROM vpay.jobs",
        "SELECT amount FROM vpay.charges",
        "SELECT payer_masked FROM vpay.charges",
        "SELECT provider_reference_id FROM vpay.charges",
        "SELECT body FROM vpay.events",
        "SELECT object_id FROM vpay.events",
        "SELECT * FROM vpay.payment_intents",
        "SELECT * FROM vpay.customers",
        "SELECT * FROM vpay.provider_requests",
        "SELECT * FROM vpay.ledger_entries",
        "SELECT * FROM vpay.delivery_attempts",
        "SELECT body FROM vpay.inbox_events",
    ]
    said = _outcomes(logins["dispatcher"], dict.fromkeys(tries))
    assert set(said.values()) == {"InsufficientPrivilege"}, said


def test_a_web_process_takes_no_lease_and_a_person_sees_none(
    logins: dict[str, str], told: str
) -> None:
    for role, tries in {
        "web": [
            "UPDATE vpay.jobs SET lease = gen_random_uuid()",
            "UPDATE vpay.jobs SET kind = 'another'",
            "DELETE FROM vpay.jobs",
            "UPDATE vpay.charges SET state = 'failed'",
        ],
        "operator": [
            "SELECT lease FROM vpay.jobs",
            "SELECT payload FROM vpay.jobs",
            "SELECT settled_by FROM vpay.jobs",
        ],
    }.items():
        said = _outcomes(logins[role], dict.fromkeys(tries))
        assert set(said.values()) == {"InsufficientPrivilege"}, said


def test_a_worker_in_its_role_still_erases_a_person_and_sweeps_what_is_old(
    logins: dict[str, str], database: Database, told: str
) -> None:
    worker = Database(logins["worker"], size=1)
    payments.erase_customer(worker, "acme", told)
    with pytest.raises(NotFound):
        payments.erase_customer(worker, "acme", told)
    with database.connection() as connection:
        bodies = connection.execute("SELECT body, redacted FROM vpay.events").fetchall()
    assert all(redacted for _, redacted in bodies)
    assert not [body for body, _ in bodies if b"Ada" in body or b"gold" in body]
    young = append_many(database, 1)
    _run(
        database,
        "UPDATE vpay.events SET fanout_state = 'done', list_seq = seq"
        " WHERE fanout_state = 'pending'",
        f"UPDATE vpay.events SET created_at = now() - interval '91 days' WHERE id <> '{young[0]}'",
        "UPDATE vpay.inbox_events SET state = 'ignored', ended_at = now()",
    )
    with worker.connection() as connection:
        page = events.page_behind(connection, after=0, keep=86_400, page=10)
        assert events.sweep_old(connection, [seq for seq, old in page if old]) == len(page) - 1
        connection.execute("DELETE FROM vpay.inbox_events")
    worker.close()
    with database.connection() as connection:
        left = connection.execute("SELECT id FROM vpay.events").fetchall()
    assert left == [(young[0],)]
