"""A database that is stuck, or not there: 503 soon, and all is well when it is back."""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.e2e.proxy import before
from tests.payment_kit import make_charge
from tests.web.client import Client
from tests.web.conftest import Serve
from vpay_tasks.core.charge import State
from vpay_tasks.store.db import Database, connect

DOWN = {"error": "storage"}


def call_back(client: Client, reference: str | None = None) -> tuple[int, Any]:
    told = client.call_back("mtn_momo", {"referenceId": reference or str(uuid.uuid4())})
    return told.status, told.body


def test_a_stuck_database_costs_its_own_requests_only_and_is_used_again(
    serve: Serve, dsn: str, eventually: Eventually
) -> None:
    with before(dsn) as (proxy, url), serve(url=url, threads=2, patience=0.5) as client:
        assert call_back(client)[0] == 200
        proxy.hold()
        with ThreadPoolExecutor(12) as pool:
            stuck = [pool.submit(call_back, client) for _ in range(12)]
            assert client.get("/healthz").status == 200
            assert client.get("/readyz").body == {"ready": False}
            assert [future.result() for future in stuck] == [(503, DOWN)] * 12
        proxy.release()
        eventually(lambda: call_back(client)[0] == 200)
        assert client.get("/readyz").body == {"ready": True}


def test_a_machine_without_room_for_a_thread_answers_503_until_there_is(serve: Serve) -> None:
    with serve() as client:
        before = threading.stack_size(1 << 46)  # more than there is: no thread starts
        try:
            assert call_back(client) == (503, DOWN)
        finally:
            threading.stack_size(before)
        assert call_back(client)[0] == 200


def test_a_database_that_is_not_there_is_one_alert_and_503_until_it_is_back(
    serve: Serve, dsn: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vpay_tasks")
    with before(dsn) as (proxy, url), serve(url=url, patience=0.5) as client:
        assert call_back(client)[0] == 200
        proxy.refuse()
        assert [call_back(client) for _ in range(5)] == [(503, DOWN)] * 5
        assert client.get("/healthz").status == 200
        assert client.get("/readyz").status == 503
        proxy.accept_again()
        eventually(lambda: call_back(client)[0] == 200)
    said = [vars(record)["fields"] for record in caplog.records if "fields" in vars(record)]
    outage = [fields for fields in said if fields.get("action") == "web_storage"]
    assert [fields.get("alert", False) for fields in outage] == [True, False]


def test_a_charge_that_somebody_holds_is_503_within_the_patience(
    serve: Serve, dsn: str, database: Database
) -> None:
    charge = make_charge(database, state=State.PENDING, age=300)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.jobs SET run_at = now() + interval '1 hour'")
    with serve(threads=1, patience=0.5) as client, connect(dsn, application="tests") as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT id FROM vpay.charges FOR UPDATE")
        assert call_back(client, charge.provider_reference_id) == (503, DOWN)
        holder.execute("ROLLBACK")
        assert call_back(client, charge.provider_reference_id)[0] == 200


def test_half_an_outage_is_one_alert(
    serve: Serve, dsn: str, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    charge = make_charge(database, state=State.PENDING, age=300)
    with database.connection() as connection:
        connection.execute("UPDATE vpay.jobs SET run_at = now() + interval '1 hour'")
    with serve(patience=0.5) as client, connect(dsn, application="tests") as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT id FROM vpay.charges FOR UPDATE")
        for _ in range(3):
            assert call_back(client, charge.provider_reference_id) == (503, DOWN)
            assert call_back(client)[0] == 200
        holder.execute("ROLLBACK")
    assert len([r for r in caplog.records if vars(r).get("fields", {}).get("alert")]) == 1


def test_a_database_that_takes_no_writes_is_not_ready(
    serve: Serve, dsn: str, database: Database
) -> None:
    charge = make_charge(database, state=State.PENDING, age=300)
    with connect(dsn, application="tests") as owner:
        owner.execute("UPDATE vpay.jobs SET run_at = now() + interval '1 hour'")
        name = owner.info.dbname
        owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        with serve() as client:
            assert call_back(client, charge.provider_reference_id) == (503, DOWN)
            assert client.get("/readyz").status == 503
            assert client.get("/healthz").status == 200
        owner.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())


def test_a_database_without_our_tables_is_not_ready(serve: Serve, empty_dsn: str) -> None:
    with serve(url=empty_dsn) as client:
        assert client.get("/readyz").status == 503
        assert client.get("/healthz").body == {"live": True}
