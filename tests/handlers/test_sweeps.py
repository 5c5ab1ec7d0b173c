"""The hourly sweeps: pages, isolation, and when they run again at once."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.payment_kit import MERCHANT, scalar
from tests.payments.test_checkout import end, make_session
from tests.payments.test_customers import idle, make_customer
from tests.webhooks.world import HandRun, context, endpoint, rows, settings
from vpay_tasks.core.job import Again, Answer, Done
from vpay_tasks.errors import Internal
from vpay_tasks.handlers import sweep_expired, sweep_idle_customers
from vpay_tasks.payments import customers
from vpay_tasks.store import idempotency, ratelimit
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoints


def sweep(database: Database) -> Answer | None:
    ctx = context(database, Endpoints(settings(endpoint())))
    return sweep_expired.sweep_expired(HandRun(database), ctx)


def sweep_customers(database: Database) -> Answer | None:
    ctx = context(database, Endpoints(settings(endpoint())))
    return sweep_idle_customers.sweep_idle_customers(HandRun(database), ctx)


def test_everything_that_is_over_goes_and_everything_else_stays(database: Database) -> None:
    with database.connection() as connection:
        for key in ("old", "young"):
            idempotency.claim(connection, MERCHANT, key, bytes(32), token=uuid4())
            ratelimit.count_attempt(connection, ratelimit.attempt_id("a", "b", key), "s", 60)
        connection.execute(
            "UPDATE vpay.idempotency_keys SET lease_until = now(), expires_at = now()"
            " WHERE key = 'old'"
        )
        connection.execute(
            "UPDATE vpay.rate_limits SET elapses_at = now() WHERE id = %s",
            (ratelimit.attempt_id("a", "b", "old"),),
        )
    make_session(database)
    end(database)
    make_session(database)
    for _ in range(2):
        assert sweep(database) == Done()
        assert scalar(database, "SELECT count(*) FROM vpay.idempotency_keys") == 1
        assert scalar(database, "SELECT count(*) FROM vpay.rate_limits") == 1
        counts = "SELECT status, count(*) FROM vpay.checkout_sessions GROUP BY 1 ORDER BY 1"
        assert rows(database, counts) == [("expired", 1), ("open", 1)]


def test_a_full_page_runs_again_at_once_only_if_something_moved(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_expired, "SESSIONS_PAGE", 2)
    for _ in range(3):
        make_session(database)
    end(database)
    assert sweep(database) == Again(0)
    assert sweep(database) == Done()
    for _ in range(2):
        make_session(database)
    end(database)
    with database.connection() as connection:
        connection.execute(
            "ALTER TABLE vpay.events ADD CONSTRAINT never CHECK (type <> "
            "'checkout.session.expired') NOT VALID"
        )
    assert sweep(database) == Done()


def test_one_session_that_can_not_be_expired_stops_no_other(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned, _ = make_session(database)
    make_session(database)
    end(database)
    with database.connection() as connection:
        connection.execute(
            "ALTER TABLE vpay.events ADD CONSTRAINT never"
            f" CHECK (object_id <> '{poisoned.id}') NOT VALID".encode()
        )
    assert sweep(database) == Done()
    open_ = rows(database, "SELECT id FROM vpay.checkout_sessions WHERE status = 'open'")
    assert open_ == [(poisoned.id,)]
    warned = [getattr(record, "fields", {}) for record in caplog.records]
    assert [f["session_id"] for f in warned if f.get("session_id")] == [poisoned.id]


def test_one_statement_that_fails_stops_no_other_and_is_told_in_the_end(
    database: Database,
) -> None:
    make_session(database)
    end(database)
    with database.connection() as connection:
        connection.execute("DROP TABLE vpay.rate_limits")
    with pytest.raises(Internal, match="rate_limits"):
        sweep(database)
    assert scalar(database, "SELECT status FROM vpay.checkout_sessions") == "expired"


def test_only_customers_unseen_for_a_year_are_erased(database: Database) -> None:
    old, young = make_customer(database), make_customer(database)
    idle(database, old, days=366)
    idle(database, young, days=364)
    for _ in range(2):
        assert sweep_customers(database) == Done()
        assert rows(database, "SELECT id FROM vpay.customers") == [(young.id,)]
    deleted = "SELECT count(*) FROM vpay.events WHERE type = 'customer.deleted'"
    assert scalar(database, deleted) == 1


def test_an_unfinished_erasure_is_gone_on_with_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(customers, "PAGE", 1)
    ada = make_customer(database)
    with database.transaction() as tx:
        customers.update_customer(tx, MERCHANT, ada.id, name="Ada L.")
    idle(database, ada)
    answers = [sweep_customers(database) for _ in range(4)]
    assert answers[0] == Again(0)
    assert answers[-1] == Done()
    assert scalar(database, "SELECT count(*) FROM vpay.customers") == 0


def test_one_customer_who_can_not_be_erased_stops_no_other(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned, fine = make_customer(database), make_customer(database)
    for customer in (poisoned, fine):
        idle(database, customer)
    rows(database, "UPDATE vpay.events SET body = '{}' WHERE customer_id = %s", poisoned.id)
    assert sweep_customers(database) == Done()
    ((left, erased),) = rows(database, "SELECT id, erased_at IS NOT NULL FROM vpay.customers")
    assert (left, erased) == (poisoned.id, False)
    warned = [getattr(record, "fields", {}) for record in caplog.records]
    assert [f["customer_id"] for f in warned if f.get("customer_id")] == [poisoned.id]
