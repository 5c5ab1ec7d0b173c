"""Clocks that are an hour wrong, on a worker or on Postgres: a charge's age is unmoved."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.conftest import PG, Eventually
from tests.e2e.fleet import Fleet
from tests.faketime import SLEEPING, OddPostgres, shifted
from tests.payment_kit import (
    KEYS,
    events,
    force,
    make_intent,
    momo,
    opened,
    read_charge,
    scalar,
)
from tests.payments.conftest import polling
from tests.payments.poll_kit import STATUS, about
from tests.payments.resubmit_kit import SUBMITS
from tests.rails.benches import MTN
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.payments import Confirmed, confirm
from vpay_tasks.store import migrate
from vpay_tasks.store.db import Database, connect
from vpay_tasks.transport import Pooled

HOURS = [1.0, -1.0]
HOUR = 3_600.0
POLL = "SELECT {} FROM vpay.jobs WHERE kind = 'poll_charge'"


class Work:
    """A confirm that is inside its rail call until `end`."""

    def __init__(self, database: Database, stub: StubRail) -> None:
        self._hold = stub.hold(SUBMITS)
        intent = make_intent(database)
        self.answer: object = None

        def work() -> None:
            self.answer = confirm(database, intent.id, rail=momo(stub.url), payer="46733123601")

        self._thread = threading.Thread(target=work)
        self._thread.start()
        self._hold.wait()
        self.charge: Charge = read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))

    def end(self) -> None:
        self._hold.release()
        self._thread.join()
        assert isinstance(self.answer, Confirmed)


@pytest.fixture(params=HOURS)
def odd_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a migrated database on a server whose clock is wrong. As behind a pooler: a
    session's own timers would go off at once, for the library tells a signal's handler now
    and then what time it really is."""
    server = OddPostgres(tmp_path / "pg", request.param, settings={"fsync": "off"}, version=PG)
    with server:
        url = Pooled(server.url())
        with connect(url, application="tests") as connection:
            rows = connection.execute("SELECT EXTRACT(EPOCH FROM now())::float8").fetchall()
            assert rows[0][0] - time.time() == pytest.approx(request.param * HOUR, abs=60)
            migrate.apply(connection)
        yield url


@pytest.mark.more(seconds=6)
def test_on_a_postgres_whose_clock_is_wrong_a_charge_is_as_old_as_it_is(
    odd_postgres: str, stub: StubRail
) -> None:
    with opened(odd_postgres) as database, polling(database, stub) as polls:
        work = Work(database, stub)
        assert 55 <= about(polls.run(work.charge)) <= 61
        assert read_charge(database, work.charge.id) == work.charge
        assert stub.requests(STATUS) == []
        work.end()
        assert polls.run(work.charge) is None
        assert events(database) == [("payment_intent.succeeded", work.charge.payment_intent_id)]


@pytest.mark.more(seconds=12)
@pytest.mark.parametrize("hours", HOURS)
def test_a_worker_whose_clock_is_wrong_leaves_a_confirm_alone_and_recovers_it_in_time(
    database: Database,
    stub: StubRail,
    tmp_path: Path,
    broker_url: str,
    eventually: Eventually,
    hours: float,
) -> None:
    fleet = Fleet(tmp_path, database.url, broker_url)
    fleet.config |= {
        "worker": {"modules": []},
        "rails": {"mtn_momo": MTN.table(stub)},
        "keys": {"payer_ref": [key.get_secret_value() for key in KEYS.payer_ref]},
    }
    fleet.dispatcher()
    fleet.extra |= {**shifted(hours), "PYTHONPATH": str(SLEEPING)}
    workers = fleet.workers(threads=2, queues=["payments"])
    try:
        work = Work(database, stub)
        eventually(lambda: workers.said("boot"), within=40)
        (line,) = workers.said("boot")
        assert _off(line["at"]) == pytest.approx(hours * HOUR, abs=600)
        _pull(database)
        eventually(lambda: scalar(database, POLL.format("starts")) == 1, within=40)
        eventually(lambda: scalar(database, POLL.format("lease IS NULL")))
        assert scalar(database, POLL.format("EXTRACT(EPOCH FROM run_at - now())::float8")) >= 40
        assert read_charge(database, work.charge.id) == work.charge
        assert stub.requests(STATUS) == []
        with database.transaction() as tx:
            force(tx, work.charge.id, age=61)
        _pull(database)
        eventually(
            lambda: read_charge(database, work.charge.id).state is State.SUCCEEDED, within=40
        )
        work.end()
    finally:
        fleet.end()


def _off(at: str) -> float:
    return datetime.fromisoformat(at).timestamp() - time.time()


def _pull(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("UPDATE vpay.jobs SET run_at = now() WHERE kind = 'poll_charge'")
