"""Sentry beside real processes: each of them reports, and none of them waits for it."""

from __future__ import annotations

import signal
import urllib.parse
from collections.abc import Iterator

import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from tests.ingest import KEY, Ingest, ingest

CANARY = "canary+46733123601/é"


@pytest.fixture
def sentry(fleet: Fleet) -> Iterator[Ingest]:
    with ingest() as server:
        fleet.config["sentry"] = {"dsn": server.dsn}
        fleet.config["worker"]["modules"] = ["leaky", "steered"]
        yield server


def test_a_worker_and_a_dispatcher_page_with_ids_and_leak_nothing(
    fleet: Fleet, board: Board, sentry: Ingest, eventually: Eventually
) -> None:
    dispatcher = fleet.dispatcher()
    workers = fleet.workers(threads=2, queues=["default"])
    warned = board.enqueue("warns", {})
    paged = board.enqueue("leaks", {"secret": CANARY})
    (event,) = eventually(lambda: sentry.said("a job failed"))
    assert (event["level"], event["tags"]["job_id"]) == ("fatal", str(paged))
    assert event["tags"]["process"] == "worker"
    assert [e["type"] for e in event["exception"]["values"]][-1] == "Internal"
    eventually(lambda: [line for line in workers.said("job_failed") if line["job_id"] == warned])
    # A dispatcher that can't claim alerts, too.
    _rename(board, "jobs", "hidden")
    eventually(
        lambda: [e for e in sentry.events() if e["tags"]["process"] == "dispatcher"], within=30
    )
    _rename(board, "hidden", "jobs")
    workers.signal_group(signal.SIGTERM)
    dispatcher.signal(signal.SIGTERM)
    assert (workers.wait(), dispatcher.wait()) == (0, 0)
    assert not [e for e in sentry.events() if e["tags"].get("job_id") == str(warned)]
    spellings = (CANARY, urllib.parse.quote(CANARY), repr(CANARY)[1:-1], "46733123601")
    for sent in (*sentry.envelopes, *map(str.encode, sentry.heads)):
        assert not [word for word in spellings if word.encode() in sent]
    for process in (workers, dispatcher):
        assert KEY not in process.log.read_text("utf-8")


def _rename(board: Board, table: str, to: str) -> None:
    with board.database.connection() as connection:
        connection.execute(f"ALTER TABLE vpay.{table} RENAME TO {to}".encode())


def test_the_web_process_reports_what_it_alerts(
    fleet: Fleet, sentry: Ingest, eventually: Eventually
) -> None:
    key = "k" * 32
    fleet.config["merchants"] = [{"id": "acme", "api_keys": [key]}]
    fleet.config["database"]["url"] = "postgresql://nobody@127.0.0.1:1/nothing"
    _, client = fleet.web()
    eventually(lambda: client.is_up(ready=False))
    answer = client.get("/v1/events", authorization=f"Bearer {key}")
    assert answer.status == 503
    (event,) = eventually(lambda: sentry.said("the database does not answer"))
    assert event["tags"]["process"] == "web"


@pytest.mark.more(seconds=10)
def test_a_silent_sentry_slows_no_job_and_no_end(
    fleet: Fleet, board: Board, sentry: Ingest, eventually: Eventually
) -> None:
    sentry.silent.set()
    fleet.dispatcher()
    workers = fleet.workers(threads=2, queues=["default"])
    for _ in range(20):
        board.enqueue("leaks", {"secret": CANARY})
    done = [board.enqueue("in_batches", {"n": n}) for n in range(20)]
    eventually(lambda: sentry.held)
    eventually(lambda: set(board.runs("ended")) == set(done))
    eventually(lambda: all(row[6] == "poisoned" for row in board.left()))
    # The library's own patience with a server that says nothing is 30 s.
    workers.signal(signal.SIGTERM)
    assert workers.wait(timeout=25) == 0
    assert sentry.events() == []
