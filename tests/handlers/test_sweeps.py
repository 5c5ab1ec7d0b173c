"""The hourly sweeps: pages, isolation, and when they run again at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.payment_kit import MERCHANT, scalar
from tests.payments.test_checkout import end, make_session
from tests.payments.test_customers import idle, make_customer
from tests.webhooks.world import HandRun, context, endpoint, rows, settings
from vpay_tasks import telemetry
from vpay_tasks.core.job import Again, Answer, Done
from vpay_tasks.errors import Internal
from vpay_tasks.handlers import sweep_expired, sweep_idle_customers
from vpay_tasks.payments import customers, walk
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


class CutOff(HandRun):
    """A run that is cancelled once it was asked so often."""

    def __init__(self, database: Database, after: int) -> None:
        super().__init__(database)
        self.left = after

    def __getattribute__(self, name: str) -> Any:
        if name == "cancelled":
            self.left -= 1
            return self.left < 0
        return super().__getattribute__(name)


def poisoned(database: Database, *object_ids: str) -> None:
    """No event of these objects can be written any more."""
    ids = ",".join(object_ids)
    rows(
        database,
        "ALTER TABLE vpay.events ADD CONSTRAINT never"
        f" CHECK (NOT object_id = ANY('{{{ids}}}')) NOT VALID",
    )


def test_a_walk_that_is_cut_short_goes_on_at_once_only_if_something_moved(
    database: Database,
) -> None:
    ctx = context(database, Endpoints(settings(endpoint())))
    made = [make_session(database)[0].id for _ in range(3)]
    end(database)
    assert sweep_expired.sweep_expired(CutOff(database, after=1), ctx) == Again(0)
    assert sweep_expired.sweep_expired(CutOff(database, after=0), ctx) == Done()
    late = HandRun(database, deadline=time.monotonic() + walk.LEFT_S)
    assert sweep_expired.sweep_expired(late, ctx) == Done()
    open_ = "SELECT count(*) FROM vpay.checkout_sessions WHERE status = 'open'"
    assert scalar(database, open_) == 2
    poisoned(database, *made)
    assert sweep_expired.sweep_expired(CutOff(database, after=1), ctx) == Done()


def test_a_page_of_sessions_that_fail_hides_nobody_behind_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_expired, "SESSIONS_PAGE", 2)
    bad = [make_session(database)[0].id for _ in range(4)]
    end(database)
    poisoned(database, *bad)
    make_session(database)
    rows(
        database,
        "UPDATE vpay.checkout_sessions SET expires_at = now() WHERE expires_at > now()",
    )
    before = telemetry.counts().get("sweep_failures", 0)
    for _ in range(2):
        assert sweep(database) == Done()
    expired = "SELECT count(*) FROM vpay.checkout_sessions WHERE status = 'expired'"
    assert scalar(database, expired) == 1
    assert telemetry.counts()["sweep_failures"] - before == 8


def test_a_page_of_customers_who_fail_hides_nobody_behind_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_idle_customers, "PAGE", 2)
    bad = [make_customer(database) for _ in range(6)]
    for customer in bad[:3]:
        idle(database, customer)
    # The other three were erased, and what is left of them can't be read.
    for customer in bad[3:]:
        rows(
            database,
            "UPDATE vpay.customers SET erased_at = now(), name = NULL, email = NULL,"
            " phone = NULL, metadata = '{}' WHERE id = %s",
            customer.id,
        )
    for customer in bad:
        rows(database, "UPDATE vpay.events SET body = '{}' WHERE customer_id = %s", customer.id)
    last, erased = make_customer(database), make_customer(database)
    idle(database, last, days=365)
    customers_of = "SELECT count(*) FROM vpay.customers WHERE id = %s"
    rows(
        database,
        "UPDATE vpay.customers SET erased_at = now(), name = NULL, email = NULL,"
        " phone = NULL, metadata = '{}' WHERE id = %s",
        erased.id,
    )
    before = telemetry.counts().get("sweep_failures", 0)
    assert sweep_customers(database) == Done()
    assert telemetry.counts()["sweep_failures"] - before == len(bad), "each is tried once"
    assert scalar(database, customers_of, last.id) == 0
    assert scalar(database, customers_of, erased.id) == 0
    assert scalar(database, "SELECT count(*) FROM vpay.customers") == 6


def test_two_sweeps_at_once_end_each_thing_once(database: Database) -> None:
    for _ in range(10):
        make_session(database)
        idle(database, make_customer(database))
    end(database)
    with ThreadPoolExecutor(4) as pool:
        swept = [pool.submit(sweep, database) for _ in range(2)]
        swept += [pool.submit(sweep_customers, database) for _ in range(2)]
        assert [one.result() for one in swept] == [Done()] * 4
    told = "SELECT type, count(*) FROM vpay.events WHERE type ~ 'expired|deleted' GROUP BY 1"
    assert sorted(rows(database, told)) == [
        ("checkout.session.expired", 10),
        ("customer.deleted", 10),
    ]


def test_one_session_that_can_not_be_expired_stops_no_other(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    bad, _ = make_session(database)
    make_session(database)
    end(database)
    poisoned(database, bad.id)
    assert sweep(database) == Done()
    open_ = rows(database, "SELECT id FROM vpay.checkout_sessions WHERE status = 'open'")
    assert open_ == [(bad.id,)]
    warned = [getattr(record, "fields", {}) for record in caplog.records]
    assert [f["row"] for f in warned if f.get("row")] == [bad.id]


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
    bad, fine = make_customer(database), make_customer(database)
    for customer in (bad, fine):
        idle(database, customer)
    rows(database, "UPDATE vpay.events SET body = '{}' WHERE customer_id = %s", bad.id)
    assert sweep_customers(database) == Done()
    ((left, erased),) = rows(database, "SELECT id, erased_at IS NOT NULL FROM vpay.customers")
    assert (left, erased) == (bad.id, False)
    warned = [getattr(record, "fields", {}) for record in caplog.records]
    assert [f["row"] for f in warned if f.get("row")] == [bad.id]
