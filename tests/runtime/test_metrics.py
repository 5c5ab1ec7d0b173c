"""What Prometheus gets, over real HTTP, from a real database."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vpay_tasks.errors import Configuration
from vpay_tasks.runtime import metrics
from vpay_tasks.runtime.metrics import Metrics, WorkerSums
from vpay_tasks.store.db import Connection, Database, connect
from vpay_tasks.store.gauges import WorkerStats

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def worker(worker_id: str, **counters: int) -> WorkerStats:
    return WorkerStats(
        id=worker_id,
        host="h",
        pid=1,
        queues=("payments",),
        threads=4,
        draining=False,
        holds_lock=True,
        pulse_age=0.1,
        age=5.0,
        alive=True,
        counters=counters,
    )


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scrape reads anew."""
    monkeypatch.setattr(metrics, "READ_EVERY_S", 0.0)


@pytest.fixture
def served(database: Database) -> Iterator[str]:
    exporter = Metrics(database)
    port = exporter.start(0)
    yield f"http://127.0.0.1:{port}/metrics"
    exporter.stop()


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def put_worker(connection: Connection, worker_id: str, posts: int) -> None:
    connection.execute(
        "INSERT INTO vpay.workers (id, host, pid, queues, threads, stats)"
        " VALUES (%(id)s, 'h', 1, '{payments}', 4, jsonb_build_object("
        "'counters', jsonb_build_object('posts', %(posts)s::integer)))"
        " ON CONFLICT (id) DO UPDATE SET stats = excluded.stats",
        {"id": worker_id, "posts": posts},
    )


POSTS = ("vpay_posts_total", (("source", "workers"),))


@pytest.mark.usefixtures("fresh")
def test_a_scrape_shows_jobs_ages_workers_and_counters(database: Database, served: str) -> None:
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, payload, run_at)"
            " VALUES ('payments', 'poll_charge', '{}', now() - interval '1 min')"
        )
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, payload, parked_at, dead_reason)"
            " VALUES ('payments', 'mine', '{}', now(), 'poisoned')"
        )
        put_worker(connection, "w1", 7)
    samples = scrape(served)
    jobs = {
        labels: value for (name, labels), value in samples.items() if name == "vpay_jobs" and value
    }
    assert samples["vpay_up", ()] == 1
    assert jobs == {
        (("kind", "poll_charge"), ("queue", "payments"), ("state", "ready")): 1,
        (("kind", "mine"), ("queue", "payments"), ("state", "parked")): 1,
    }
    assert 60 <= samples["vpay_queue_age_seconds", (("queue", "payments"),)] < 180
    assert samples["vpay_workers", (("state", "alive"),)] == 1
    assert samples["vpay_workers", (("state", "dead"),)] == 0
    assert samples["vpay_worker_threads", (("queue", "payments"),)] == 4
    assert (
        samples[
            "vpay_parked_jobs",
            (("kind", "mine"), ("queue", "payments"), ("reason", "poisoned")),
        ]
        == 1
    )


@pytest.mark.usefixtures("fresh")
def test_workers_counters_add_up_from_the_first_reading_on(database: Database, served: str) -> None:
    with database.connection() as connection:
        put_worker(connection, "w1", 7)
        assert scrape(served)[POSTS] == 0
        put_worker(connection, "w1", 10)
        put_worker(connection, "w2", 5)
        assert scrape(served)[POSTS] == 8
        connection.execute("DELETE FROM vpay.workers")
        assert scrape(served)[POSTS] == 8
        put_worker(connection, "w3", 1)
        assert scrape(served)[POSTS] == 9


@pytest.mark.usefixtures("fresh")
def test_a_scrape_shows_who_holds_vacuum_up_and_what_nobody_reaps(
    database: Database, dsn: str, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "HOLDER_S", 0.0)
    with (
        database.connection() as connection,
        connect(dsn, application="vpay dispatch d_1"),
        connect(dsn, application="a report") as report,
    ):
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, payload, lease, locked_by, locked_at,"
            " lease_until) VALUES ('payments', 'k', '{}', gen_random_uuid(), 'w', now(),"
            " now() - interval '1 min')"
        )
        report.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        report.execute("SELECT 1")
        samples = scrape(served)
        pid = str(report.info.backend_pid)
    (held,) = (labels for name, labels in samples if name == "vpay_xmin_holder_age_seconds")
    assert dict(held) == {
        "holder": "session",
        "pid": pid,
        "name": "a report",
        "state": "idle in transaction",
    }
    assert samples["vpay_xmin_age_seconds", ()] > 0
    assert samples["vpay_xmin_age_transactions", ()] >= 0
    assert samples["vpay_dispatchers", ()] == 1
    assert samples["vpay_leases_overdue", (("queue", "payments"),)] == 1
    assert samples["vpay_charges", (("state", "contradicted"),)] == 0
    assert samples["vpay_jobs_dead_rows", ()] >= 0


@pytest.mark.usefixtures("fresh")
def test_workers_that_ended_without_a_goodbye_are_lost_for_a_while(
    database: Database, served: str
) -> None:
    with database.connection() as connection:
        for name, draining, holds, age in (
            ("killed", False, True, "10 s"),
            ("killed while draining", True, True, "10 s"),
            ("left in good order", True, False, "10 s"),
            ("killed long ago", False, True, "16 min"),
        ):
            connection.execute(
                "INSERT INTO vpay.workers (id, host, pid, queues, threads, draining, holds_lock,"
                " seen_at) VALUES (%(id)s, 'h', 1, '{payments}', 4, %(draining)s, %(holds)s,"
                " now() - %(age)s::interval)",
                {"id": name, "draining": draining, "holds": holds, "age": age},
            )
        samples = scrape(served)
    assert samples["vpay_workers_lost", ()] == 2
    assert samples["vpay_workers", (("state", "dead"),)] == 4


def test_readings_are_shared_between_scrapes(database: Database, served: str) -> None:
    with database.connection() as connection:
        first = scrape(served)
        put_worker(connection, "w1", 7)
        second = scrape(served)
    alive = ("vpay_workers", (("state", "alive"),))
    assert (first[alive], second[alive]) == (0, 0)


@pytest.mark.usefixtures("fresh")
def test_a_scrape_without_postgres_serves_what_it_has_and_says_so(
    database: Database, served: str, postgres_url: str
) -> None:
    with database.connection() as connection:
        connection.execute(
            "INSERT INTO vpay.jobs (queue, kind, payload) VALUES ('payments', 'k', '{}')"
        )
        name = connection.info.dbname
    ready = ("vpay_jobs", (("kind", "k"), ("queue", "payments"), ("state", "ready")))
    before = scrape(served)
    assert (before["vpay_up", ()], before[ready]) == (1, 1)
    admin = Database(postgres_url, size=1)
    with admin.connection() as connection:
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        during = scrape(served)
        assert (during["vpay_up", ()], during[ready]) == (0, 1)
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
    admin.close()


def test_a_scrape_of_a_server_that_never_was_there_says_down() -> None:
    nowhere = Database("postgresql://postgres@127.0.0.1:1/nowhere", size=1)
    exporter = Metrics(nowhere)
    samples = {m.name: [s.value for s in m.samples] for m in exporter.collect()}
    nowhere.close()
    assert samples["vpay_up"] == [0.0]
    assert "vpay_jobs" not in samples
    assert samples["vpay_posts"][0] == 0.0


def test_sums_never_go_down() -> None:
    sums = WorkerSums()
    sums.add([worker("a", posts=100)])
    seen = [sums.total["posts"]]
    for workers in (
        [worker("a", posts=105)],
        [],
        [worker("b", posts=3)],
        [worker("b", posts=1)],
        [worker("b", posts=1), worker("c")],
        [worker("b"), worker("c", posts=2)],
    ):
        sums.add(workers)
        seen.append(sums.total["posts"])
    assert seen == [0, 5, 5, 8, 9, 9, 11]


def test_the_port_is_free_again_after_stop(database: Database) -> None:
    exporter = Metrics(database)
    port = exporter.start(0)
    exporter.stop()
    assert exporter.start(port) == port
    exporter.stop()


def test_a_port_that_is_taken_is_a_fault_of_the_settings(database: Database) -> None:
    first, second = Metrics(database), Metrics(database)
    port = first.start(0)
    with pytest.raises(Configuration, match=f"metrics_port: {port} can't be had"):
        second.start(port)
    first.stop()
