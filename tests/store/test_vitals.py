"""What holds the system up, on a real server: sessions, prepared transactions, leases."""

from __future__ import annotations

from tests.conftest import Eventually
from vpay_tasks.store import checkup, gauges, vitals
from vpay_tasks.store.checkup import Setting
from vpay_tasks.store.db import Connection, Database, connect


def test_a_quiet_system_has_good_vitals(database: Database) -> None:
    with database.connection() as connection:
        seen = vitals.look(connection)
    assert (seen.live_dispatchers, seen.horizon, seen.oldest()) == (0, (), 0.0)
    assert (seen.dead_rows, seen.overdue, seen.unresolved, seen.contradicted) == (0, {}, 0, 0)


def test_a_session_with_a_snapshot_holds_the_horizon_and_is_named(
    database: Database, dsn: str
) -> None:
    with database.connection() as connection, connect(dsn, application="a report") as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT 1")
        pid = session.info.backend_pid
        (one,) = vitals.horizon(connection)
        session.execute("COMMIT")
        after = vitals.horizon(connection)
    assert (one.holder, one.pid, one.name, one.state) == (
        "session",
        pid,
        "a report",
        "idle in transaction",
    )
    assert one.seconds is not None
    assert 0 <= one.seconds < 60
    assert after == []


def test_a_session_that_has_written_holds_the_horizon_without_a_snapshot(
    database: Database, dsn: str
) -> None:
    with database.connection() as connection, connect(dsn, application="a writer") as session:
        session.execute("BEGIN")
        session.execute("CREATE TABLE public.written (id integer)")
        (one,) = vitals.horizon(connection)
        session.execute("ROLLBACK")
    assert one.name == "a writer"


def test_sessions_of_other_databases_hold_nothing_here(database: Database, empty_dsn: str) -> None:
    with database.connection() as connection, connect(empty_dsn, application="x") as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT 1")
        assert vitals.horizon(connection) == []


def test_a_role_without_rights_sees_the_age_in_transactions_alone(
    database: Database, dsn: str
) -> None:
    with database.connection() as connection, connect(dsn, application="hidden") as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT 1")
        connection.execute("CREATE ROLE vpay_nobody")
        try:
            connection.execute("SET ROLE vpay_nobody")
            (one,) = vitals.horizon(connection)
            connection.execute("RESET ROLE")
        finally:
            connection.execute("DROP ROLE vpay_nobody")
    assert (one.name, one.state, one.seconds) == ("hidden", None, None)
    assert one.transactions >= 0


def test_a_dispatcher_that_asks_nothing_is_connected_and_not_live(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    with database.connection() as connection, connect(dsn, application="vpay dispatch d_1") as one:
        one.execute("SELECT 1")
        assert vitals.dispatchers(connection) == (1, 1)
        eventually(lambda: vitals.dispatchers(connection, silence=0.05) == (1, 0))
        one.execute("SELECT 1")
        assert vitals.dispatchers(connection) == (1, 1)
    with database.connection() as connection:
        eventually(lambda: vitals.dispatchers(connection) == (0, 0))


def lease(connection: Connection, queue: str, ended: str) -> None:
    connection.execute(
        "INSERT INTO vpay.jobs (queue, kind, payload, lease, locked_by, locked_at, lease_until)"
        " VALUES (%(queue)s, 'k', '{}', gen_random_uuid(), 'w', now(),"
        " now() - %(ended)s::interval)",
        {"queue": queue, "ended": ended},
    )


def test_leases_are_overdue_once_every_reaper_should_have_seen_them(database: Database) -> None:
    with database.connection() as connection:
        for ended in ("16 s", "1 h", "10 s", "-30 s"):
            lease(connection, "payments", ended)
        lease(connection, "webhooks", "20 s")
        assert vitals.overdue_leases(connection) == {"payments": 2, "webhooks": 1}


def test_charges_in_doubt_are_counted(database: Database) -> None:
    with database.connection() as connection:
        for number, (state, contradicted) in enumerate(
            (("unresolved", None), ("unresolved", "now"), ("pending", None), ("pending", "now"))
        ):
            connection.execute(
                "INSERT INTO vpay.payment_intents (id, merchant_id, amount, currency)"
                " VALUES (%s, 'acme', 5, 'EUR')",
                (f"pi_{number}",),
            )
            connection.execute(
                "INSERT INTO vpay.charges (id, payment_intent_id, provider_code,"
                " provider_reference_id, state, amount, currency, contradicted_at)"
                " VALUES (%s, %s, 'mtn_momo', %s, %s, 5, 'EUR', %s::timestamptz)",
                (f"ch_{number}", f"pi_{number}", f"r{number}", state, contradicted),
            )
        assert vitals.charges_in_doubt(connection) == (2, 2)


def test_dead_rows_and_vacuums_of_the_jobs_table_are_seen(
    database: Database, eventually: Eventually
) -> None:
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, payload)"
            " SELECT 'q', 'k', '{}' FROM generate_series(1, 500)"
        )
        connection.execute("DELETE FROM vpay.jobs")
        eventually(lambda: vitals.jobs_table(connection)[0] >= 500)
        connection.execute("VACUUM vpay.jobs")

        def vacuumed() -> bool:
            dead, age = vitals.jobs_table(connection)
            return dead < 500 and age is not None and age < 60

        eventually(vacuumed)


def test_a_setting_that_is_off_is_told_with_where_it_was_set(database: Database, dsn: str) -> None:
    with database.connection() as connection:
        name = connection.info.dbname
        assert "synchronous_commit" not in {s.name for s in checkup.risky_settings(connection)}
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
    with connect(dsn, application="tests") as fresh:
        assert Setting("synchronous_commit", "off", "database") in checkup.risky_settings(fresh)


def test_a_role_that_hears_no_warnings_lacks_a_setting(database: Database) -> None:
    with database.connection() as connection:
        assert "client_min_messages" not in gauges.unset(connection)
        connection.execute("SET client_min_messages = error")
        assert "client_min_messages" in gauges.unset(connection)
        connection.execute("RESET client_min_messages")


def test_a_silent_transaction_is_found_and_a_silent_session_is_not(
    database: Database, dsn: str, eventually: Eventually
) -> None:
    with (
        database.connection() as connection,
        connect(dsn, application="forgotten") as forgotten,
        connect(dsn, application="idle"),
    ):
        forgotten.execute("BEGIN")
        pid = forgotten.info.backend_pid
        assert checkup.idle_transactions(connection) == []
        (one,) = eventually(lambda: checkup.idle_transactions(connection, silence=0.05))
    assert (one.pid, one.name) == (pid, "forgotten")


def test_keys_that_no_job_has_are_missing(database: Database) -> None:
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, payload, dedupe_key)"
            " VALUES ('housekeeping', 'k', '{}', 'there')"
        )
        assert checkup.missing_keys(connection, ["there", "b", "a"]) == ["a", "b"]


def test_lanes_are_closed_by_a_person_or_while_their_circuit_is_open(database: Database) -> None:
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.lanes (queue, lane, paused, circuit_until) VALUES"
            " ('webhooks', 'a/open', false, now() + interval '1 min'),"
            " ('webhooks', 'a/paused', true, NULL),"
            " ('webhooks', 'a/past', false, now() - interval '1 min'),"
            " ('webhooks', 'a/plain', false, NULL)"
        )
        found = [(lane.lane, lane.paused) for lane in checkup.closed_lanes(connection)]
    assert found == [("a/paused", True), ("a/open", False)]


def test_deliveries_of_a_day_that_ended_undelivered_are_counted_once(database: Database) -> None:
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.events (id, merchant_id, type, object_id, livemode, body,"
            " fanout_state, list_seq)"
            " VALUES ('evt_1', 'acme', 'payment_intent.succeeded', 'pi_1', false, '{}',"
            " 'done', 1)"
        )
        for name, state, ended in (
            ("a", "exhausted", "1 h"),
            ("b", "exhausted", "25 h"),
            ("c", "delivered", "1 h"),
            ("d", "gone", "1 h"),
            ("e", "pending", None),
        ):
            connection.execute(
                "INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id,"
                " state, ended_at) VALUES (%(id)s, 'evt_1', 'acme', %(id)s, %(state)s,"
                " now() - %(ended)s::interval)",
                {"id": f"del_{name}", "state": state, "ended": ended},
            )
            connection.execute(
                "INSERT INTO vpay.delivery_attempts (begun_at, duration_ms, attempt, counted,"
                " delivery_id, key_ids, excerpt)"
                " SELECT now(), 1, n, true, %s, '{}', '' FROM generate_series(1, 2) AS n",
                (f"del_{name}",),
            )
        assert checkup.given_up(connection) == {"exhausted": 1, "gone": 1}
