"""`uvicorn vpay_tasks.web:app` as it is started in production."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Eventually
from tests.e2e.fleet import Fleet, Process
from tests.e2e.proxy import before
from tests.payment_kit import APPROVED, make_charge
from tests.rails.benches import MTN
from tests.web.client import to_the_end
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import State
from vpay_tasks.store.db import Database, connect

ENDED = (0, -signal.SIGTERM)
"""uvicorn ends in good order, and then once more by the signal: a supervisor sees a stop."""
KEY = "bm90LWEtc2VjcmV0LWJ1dC0zMi1ieXRlcy1sb25nISE="


@pytest.fixture
def fleet(tmp_path: Path, dsn: str, stub: StubRail) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, dsn, "redis://127.0.0.1:1/0")
    fleet.config |= {"rails": {MTN.code: MTN.table(stub)}, "keys": {"payer_ref": [KEY]}}
    yield fleet
    fleet.end()


def test_two_groups_of_two_processes_answer_and_end_at_a_signal(
    fleet: Fleet, eventually: Eventually
) -> None:
    groups = [fleet.web("--workers", "2") for _ in range(2)]
    for process, client in groups:
        eventually(client.is_up)
        eventually(partial(_booted, process, 2))
        body = {"referenceId": "canary-reference", "payer": {"partyId": APPROVED}}
        assert client.call_back(MTN.code, body).status == 200
        assert client.send("/canary-path", b"canary").status == 404
    for process, _ in groups:
        process.signal(signal.SIGTERM)
    for process, _ in groups:
        assert process.wait() == 0
        assert len(process.said("end")) == 2
        log = process.log.read_text()
        assert "canary" not in log
        assert APPROVED not in log


def _booted(process: Process, times: int) -> bool:
    return len(process.said("boot")) == times


def test_a_signal_lets_the_request_in_hand_finish(
    fleet: Fleet, database: Database, dsn: str, eventually: Eventually
) -> None:
    charge = make_charge(database, state=State.PENDING, age=300)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.jobs SET run_at = now() + interval '1 hour'")
    fleet.config["web"] = {"patience": 30}
    process, client = fleet.web()
    eventually(client.is_up)
    with connect(dsn, application="tests") as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("BEGIN")
        holder.execute("SELECT id FROM vpay.charges FOR UPDATE")
        body = MTN.callback(charge.provider_reference_id)
        asked = pool.submit(client.call_back, MTN.code, body)
        eventually(lambda: _waits_for_a_lock(database))
        process.signal(signal.SIGTERM)
        eventually(lambda: _refuses(client.port))
        holder.execute("ROLLBACK")
        assert asked.result().status == 200
    assert process.wait() in ENDED
    assert process.said("end")


def _waits_for_a_lock(database: Database) -> bool:
    with database.connection() as connection:
        return bool(
            connection.execute(
                "SELECT 1 FROM pg_stat_activity"
                " WHERE application_name = 'vpay web' AND wait_event_type = 'Lock'"
            ).fetchall()
        )


def _refuses(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return to_the_end(line) == b""
    except OSError:
        return True


def test_a_stuck_thread_does_not_keep_the_process_from_ending(
    fleet: Fleet, dsn: str, eventually: Eventually
) -> None:
    with before(dsn) as (proxy, url):
        fleet.config["database"] = {"url": url}
        process, client = fleet.web()
        eventually(client.is_up)
        proxy.hold()
        assert client.call_back(MTN.code, MTN.callback("r-1")).status == 503
        # Not SIGTERM: behind it uvicorn ends by the signal itself and waits for no thread.
        process.signal(signal.SIGINT)
        assert process.wait() in (0, 130, -signal.SIGINT)
        assert process.said("end")


def test_it_answers_before_postgres_does(fleet: Fleet, eventually: Eventually) -> None:
    fleet.config["database"] = {"url": "postgresql://nobody@127.0.0.1:9/none"}
    _, client = fleet.web()
    eventually(lambda: client.is_up(ready=False))
    assert client.get("/readyz").status == 503
    assert client.call_back(MTN.code, MTN.callback("r-1")).status == 503


def test_wrong_settings_are_named_and_end_it(fleet: Fleet) -> None:
    fleet.config["rails"]["mtn_momo"]["api_kee"] = "canary"
    process, _ = fleet.web()
    assert process.wait() == 78
    log = process.log.read_text()
    assert "rails.mtn_momo.api_kee: unknown key, did you mean 'api_key'?" in log
    assert "Traceback" not in log
    assert "canary" not in log


def test_no_broker_is_loaded(fleet: Fleet) -> None:
    code = (
        "import json, sys, vpay_tasks.web; vpay_tasks.web.app;"
        "print(json.dumps([name for name in sys.modules if '.' not in name]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "VPAY_CONFIG": str(fleet.write())},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"dramatiq", "redis", "pika", "tenacity"} & set(json.loads(done.stdout)) == set()
