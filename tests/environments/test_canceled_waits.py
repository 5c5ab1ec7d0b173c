"""A COMMIT that waits for its synchronous standby, and somebody who cancels the wait: Postgres
then calls it a success. Here it is ambiguous, and nobody acts on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import Eventually
from tests.environments.servers import asked, deserted, waiting
from tests.inbox.bench import InboxBench
from tests.inbox.signing import by_stripe, stripe_event
from tests.payment_kit import APPROVED, make_intent, momo, opened
from tests.payments.resubmit_kit import SUBMITS
from tests.silences import heard, impatient
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import State
from vpay_tasks.core.task import Kind
from vpay_tasks.errors import AmbiguousCommit
from vpay_tasks.payments import Exists, confirm
from vpay_tasks.store import checkup, claims, db, jobs, sql, vitals
from vpay_tasks.store.checkup import LoginSetting, Setting
from vpay_tasks.store.silence import Told
from vpay_tasks.transport import Pooled

NOTHING = Kind("nothing")
IDS = "SELECT count(*)::int FROM vpay.jobs WHERE kind = 'nothing'"


def in_a_unit_of_work(connection: db.Connection) -> None:
    with db.unit_of_work(connection) as tx:
        jobs.enqueue(tx, NOTHING, {})


def by_itself(connection: db.Connection) -> None:
    jobs.enqueue(connection, NOTHING, {})


def in_one_round_trip(connection: db.Connection) -> None:
    """As a claim is sent: several statements and their COMMIT."""
    write = sql.Statement(
        "tests", "write", "INSERT INTO public.canaries DEFAULT VALUES RETURNING 1"
    )
    sql.run_together(connection, [claims.lock_queue("default"), sql.Bound(write, {})])


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def cancel(url: str, application: str, eventually: Eventually) -> None:
    (pid,) = eventually(lambda: waiting(url, application))
    asked(url, "SELECT pg_cancel_backend(%s)", pid)


@pytest.mark.parametrize("commit", [in_a_unit_of_work, by_itself, in_one_round_trip])
def test_a_commit_whose_wait_for_its_standby_is_canceled_is_ambiguous(
    lone: str,
    aside: ThreadPoolExecutor,
    eventually: Eventually,
    commit: Callable[[db.Connection], None],
) -> None:
    with db.connect(lone, application="writer") as connection:
        with deserted(lone, eventually):
            for _ in range(2):
                done = aside.submit(commit, connection)
                cancel(lone, "writer", eventually)
                with pytest.raises(AmbiguousCommit, match="a failover may undo it"):
                    done.result()
        # Nothing is blamed on what comes after it.
        assert sql.run(connection, sql.Statement("tests", "read", "SELECT 1")) == [(1,)]
        commit(connection)


def test_a_role_that_hears_of_errors_only_hears_of_a_canceled_wait_too(
    lone: str, aside: ThreadPoolExecutor, eventually: Eventually
) -> None:
    asked(lone, "ALTER ROLE postgres SET client_min_messages = error")
    try:
        with db.connect(lone, application="writer") as connection, deserted(lone, eventually):
            done = aside.submit(by_itself, connection)
            cancel(lone, "writer", eventually)
            with pytest.raises(AmbiguousCommit):
                done.result()
    finally:
        asked(lone, "ALTER ROLE postgres RESET client_min_messages")


def test_a_commit_that_waits_for_its_standby_is_seen_by_nobody_until_it_has_it(
    lone: str, aside: ThreadPoolExecutor, eventually: Eventually
) -> None:
    before = asked(lone, IDS)
    with db.connect(lone, application="writer", statement_timeout=0.2) as connection:
        with deserted(lone, eventually):
            done = aside.submit(in_a_unit_of_work, connection)
            eventually(lambda: waiting(lone, "writer"))
            assert asked(lone, IDS) == before
        done.result()
    assert asked(lone, IDS) == [(before[0][0] + 1,)]


@pytest.mark.parametrize("way", [str, Pooled])
def test_a_commit_that_waits_for_its_standby_past_every_limit_is_not_hung_up_on(
    lone: str,
    aside: ThreadPoolExecutor,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    way: type[str],
) -> None:
    impatient(monkeypatch)
    with db.connect(way(lone), application="writer") as connection:
        told = heard(connection)
        with deserted(lone, eventually):
            done = aside.submit(in_a_unit_of_work, connection)
            eventually(lambda: told[:2] == [Told.AT_WORK] * 2)
            assert not done.done()
        done.result()
        in_a_unit_of_work(connection)


def test_a_confirm_whose_charge_a_failover_may_undo_sends_nothing(
    lone: str, aside: ThreadPoolExecutor, stub: StubRail, eventually: Eventually
) -> None:
    with opened(lone) as database:
        intent = make_intent(database)

        def pay() -> object:
            return confirm(database, intent.id, rail=momo(stub.url), payer=APPROVED)

        with deserted(lone, eventually):
            paying = aside.submit(pay)
            cancel(lone, "tests", eventually)
            with pytest.raises(AmbiguousCommit):
                paying.result()
        assert stub.requests(SUBMITS) == []
        again = pay()
        assert isinstance(again, Exists)
        assert again.charge.state is State.SUBMITTING
        assert stub.requests(SUBMITS) == []


def test_the_doctor_says_that_commits_wait_and_asks_nobody_to_end_them(
    lone: str, aside: ThreadPoolExecutor, eventually: Eventually
) -> None:
    with (
        db.connect(lone, application="writer") as connection,
        db.connect(lone, application="doctor") as doctor,
    ):
        with deserted(lone, eventually):
            done = aside.submit(in_a_unit_of_work, connection)
            eventually(lambda: waiting(lone, "writer"))
            seen = checkup.commits_waiting(doctor)
            assert seen is not None
            assert (seen.number, seen.seconds > 0) == (2, True), "the writer's, the canary's"
            holders = {one.name: one.state for one in vitals.horizon(doctor)}
            assert holders["writer"] == vitals.AWAITS_STANDBY
        done.result()
        assert checkup.commits_waiting(doctor) is None


def test_the_doctor_finds_a_role_whose_commits_wait_for_nobody(
    lone: str, eventually: Eventually
) -> None:
    hasty = Setting("synchronous_commit", "local", "session")
    with db.connect(lone, application="doctor") as doctor:
        doctor.execute("SET synchronous_commit = local")
        assert hasty not in checkup.risky_settings(doctor), "nobody else was to have them"
        with deserted(lone, eventually):
            eventually(lambda: hasty in checkup.risky_settings(doctor))


def test_the_doctor_finds_a_login_whose_commits_wait_for_nobody(
    lone: str, eventually: Eventually
) -> None:
    hasty = LoginSetting("hasty", False, "synchronous_commit", "local")
    with db.connect(lone, application="doctor") as doctor:
        doctor.execute("CREATE ROLE hasty LOGIN SUPERUSER")
        try:
            doctor.execute("ALTER ROLE hasty SET synchronous_commit = local")
            assert checkup.settings_of_logins(doctor) == [], "nobody else was to have them"
            with deserted(lone, eventually):
                eventually(lambda: checkup.settings_of_logins(doctor) == [hasty])
        finally:
            doctor.execute("DROP ROLE hasty")


def test_a_vendor_is_not_thanked_for_what_a_failover_may_undo(
    lone: str, aside: ThreadPoolExecutor, eventually: Eventually
) -> None:
    database = db.Database(lone, application="tests")
    box = InboxBench(database, lone)
    try:
        event = by_stripe(stripe_event())
        with deserted(lone, eventually):
            answering = aside.submit(box.deliver, event)
            cancel(lone, "tests inbox", eventually)
            assert answering.result().status == 503
            # Sent again it counts its delivery, and so waits for the standby like the first.
            again = aside.submit(box.deliver, event)
            eventually(lambda: waiting(lone, "tests inbox"))
            assert not again.done()
        assert again.result().status == 200
        assert box.rows("deliveries") == [2]
    finally:
        box.close()
        database.close()
