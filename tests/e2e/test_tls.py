"""Real processes on settings of real money, with both servers behind TLS."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from tests.e2e.test_livemode import live
from tests.tls import NAME, SECRET, USER, Certificates
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.valkey import Valkey
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect

__all__ = ["live"]


@pytest.fixture(params=["tls-postgres"])
def dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    """A migrated database of the server with TLS, as the test itself sees it."""
    server: Postgres = request.getfixturevalue("tls_postgres")
    name = f"tls_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    with connect(server.url(name), application="tests") as connection:
        migrate.apply(connection)
    yield server.url(name)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["tls-redis"])
def encrypted(
    request: pytest.FixtureRequest, live: Fleet, dsn: str, certificates: Certificates
) -> Fleet:
    """Livemode's fleet, each of its addresses by TLS."""
    redis: Valkey
    redis, port = request.getfixturevalue("tls_redis")
    assert redis.pid
    parts = urlsplit(dsn)
    live.extra |= {"SERVERS_PASSWORD": SECRET}
    live.config["database"] = {
        "url": f"postgresql://{USER}:${{SERVERS_PASSWORD}}@{NAME}:{parts.port}{parts.path}"
        f"?sslmode=verify-full&sslrootcert={certificates.authority}&channel_binding=require"
    }
    live.config["broker"] = {
        "url": f"rediss://{USER}:${{SERVERS_PASSWORD}}@{NAME}:{port}/0"
        f"?ssl_ca_certs={certificates.authority}"
    }
    return live


@pytest.mark.more(seconds=12)
def test_a_fleet_in_livemode_reaches_both_servers_by_tls(
    encrypted: Fleet, board: Board, eventually: Eventually
) -> None:
    encrypted.dispatcher()
    encrypted.workers()
    job = board.enqueue("in_batches", {"n": 1}, batch=8)
    eventually(board.empty)
    assert board.runs("ended") == [job]
    sessions = board.ask(
        "SELECT DISTINCT ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)"
        " WHERE usename = %(user)s",
        user=USER,
    )
    assert sessions == [(True,)]
    assert not [one for one in encrypted.processes if SECRET in one.log.read_text("utf-8")]


@pytest.mark.more(seconds=8)
@pytest.mark.parametrize("server", ["database", "broker"])
def test_a_process_that_meets_another_authoritys_certificate_waits_and_says_why(
    encrypted: Fleet, certificates: Certificates, eventually: Eventually, server: str
) -> None:
    url = encrypted.config[server]["url"]
    encrypted.config[server]["url"] = url.replace(
        str(certificates.authority), str(certificates.stranger)
    )
    dispatcher = encrypted.dispatcher()
    (line,) = eventually(lambda: dispatcher.said("boot_wait"))
    assert "authority" in line["error"]
    assert f"{server}.url" in line["error"] or "sslrootcert" in line["error"]
    assert SECRET not in dispatcher.log.read_text("utf-8")
