"""The way to Postgres that livemode goes: by what its library does, on a real server with TLS."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.tls import NAME, SECRET, USER, Between, Certificates
from vpay_sandbox.postgres import Postgres
from vpay_tasks.errors import Configuration, Storage
from vpay_tasks.store import way
from vpay_tasks.store.db import Database, connect
from vpay_tasks.transport import Verified, VerifiedPooled


@pytest.fixture(params=["tls-postgres"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue("tls_postgres")
    return found


def url(port: int, authority: Path | str, *, name: str = NAME, more: str = "") -> Verified:
    return Verified(
        f"postgresql://{USER}:{SECRET}@{name}:{port}/postgres?sslmode=verify-full"
        f"&sslrootcert={authority}&channel_binding=require{more}"
    )


def test_livemode_reaches_the_server_whose_name_its_authority_signed(
    server: Postgres, certificates: Certificates
) -> None:
    address = url(server.port, certificates.authority)
    with contextlib.closing(connect(address, application="tests")) as connection:
        assert connection.pgconn.ssl_in_use
        assert connection.info.get_parameters()["channel_binding"] == "require"
    database = Database(address, size=1)
    with database.transaction() as tx:
        assert tx.pgconn.ssl_in_use
    database.close()
    with contextlib.closing(connect(VerifiedPooled(address), application="tests")) as connection:
        assert connection.pgconn.ssl_in_use


Put = Callable[..., Between]


@pytest.fixture
def put_between() -> Iterator[Put]:
    made = []

    def put(target: int, certificate: Path | None) -> Between:
        made.append(Between(target, certificate, greets=True))
        return made[-1]

    yield put
    for one in made:
        one.close()


def refused(address: Verified) -> str:
    """What a person is told, twice: by a connection, and by a pool that gives up."""
    with pytest.raises(Storage) as caught:
        connect(address, application="tests")
    told = str(caught.value)
    assert told.startswith("Postgres is out of reach: ")
    assert "\n" not in told
    assert SECRET not in told
    return told


def test_another_authoritys_certificate_is_refused(
    server: Postgres, certificates: Certificates
) -> None:
    assert "authority of sslrootcert" in refused(url(server.port, certificates.stranger))
    assert "authority of sslrootcert" in refused(url(server.port, "system"))


def test_a_certificate_of_another_name_is_refused(
    server: Postgres, certificates: Certificates
) -> None:
    told = refused(url(server.port, certificates.authority, name="127.0.0.1"))
    assert "write the name into database.url that the certificate has" in told


def test_a_missing_authority_is_told_apart(server: Postgres, tmp_path: Path) -> None:
    told = refused(url(server.port, tmp_path / "nowhere"))
    assert "put the authority's certificate there" in told


def test_an_expired_certificate_is_refused_and_hears_nothing(
    server: Postgres, certificates: Certificates, put_between: Put
) -> None:
    between = put_between(server.port, certificates.expired)
    assert "has expired" in refused(url(between.port, certificates.authority))
    assert between.heard == b""


def test_whoever_says_that_the_server_has_no_tls_hears_nothing(
    server: Postgres, certificates: Certificates, put_between: Put
) -> None:
    between = put_between(server.port, None)
    told = refused(url(between.port, certificates.authority))
    assert "somebody in between answers in the server's place" in told
    assert between.heard == b""


def test_a_server_without_tls_is_refused(postgres_url: str, certificates: Certificates) -> None:
    port = urlsplit(postgres_url).port
    assert port
    assert "switch TLS on there" in refused(url(port, certificates.authority))


def test_whoever_holds_a_certificate_of_the_name_gets_no_password(
    server: Postgres, certificates: Certificates, put_between: Put
) -> None:
    """Another one of the same authority, which TLS alone takes for the server."""
    between = put_between(server.port, certificates.good)
    told = refused(url(between.port, certificates.authority))
    assert "nothing but a pooler" in told
    assert USER.encode() in between.heard  # it was taken for the server
    assert SECRET.encode() not in between.heard
    assert b"SCRAM" not in between.heard  # what a password could be guessed from


@pytest.mark.parametrize(
    ("more", "env", "words"),
    [
        ("", {}, "sslmode=verify-full"),
        ("&sslmode=prefer", {}, "sslmode=verify-full"),
        ("&sslmode=verify-ca", {}, "sslmode=verify-full"),
        ("&sslmode=verify-full&sslmode=require", {}, "sslmode=verify-full"),
        ("&sslmode=verify-full&sslrootcert=", {}, "sslrootcert=/path"),
        ("&sslmode=verify-full&channel_binding=prefer", {}, "channel_binding=require"),
        ("&sslmode=verify-full&channel_binding=prefer", {"PGCHANNELBINDING": "require"}, "bind"),
        ("", {"PGSSLMODE": "require"}, "sslmode=verify-full"),
        ("&sslmode=verify-full&service=shop", {}, "service file"),
        ("&sslmode=verify-full", {"PGSERVICE": "shop"}, "service file"),
        ("&sslmode=verify-full&ssl_min_protocol_version=TLSv1.1", {}, "below 1.2"),
        ("&sslmode=verify-full&ssl_min_protocol_version=", {}, "below 1.2"),
        ("&sslmode=verify-full&channel_binding=prefer&sslcert=/c.pem", {}, "channel_binding="),
        ("&sslmode=require", {"PGPASSWORD": "\udcff"}, "sslmode=verify-full"),  # no UTF-8
    ],
)
def test_nobody_is_even_called_where_less_would_do(
    monkeypatch: pytest.MonkeyPatch, more: str, env: dict[str, str], words: str
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    with socket.create_server(("127.0.0.1", 0)) as anybody:
        port = anybody.getsockname()[1]
        address = (
            f"postgresql://{USER}:{SECRET}@db.example:{port}/postgres?hostaddr=127.0.0.1"
            f"&sslrootcert=system&channel_binding=require{more}"
        )
        with pytest.raises(Configuration, match=words) as caught:
            connect(Verified(address), application="tests")
        assert SECRET not in str(caught.value)
        database = Database(Verified(address), size=1)
        with pytest.raises(Configuration, match=words), database.connection(patience=1):
            pass
        database.close()
        anybody.setblocking(False)
        with pytest.raises(BlockingIOError):
            anybody.accept()


def test_what_the_environment_adds_is_what_the_library_does(
    server: Postgres, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(certificates.authority))
    monkeypatch.setenv("PGCHANNELBINDING", "require")
    bare = Verified(f"postgresql://{USER}:{SECRET}@{NAME}:{server.port}/postgres")
    with contextlib.closing(connect(bare, application="tests")) as connection:
        assert connection.pgconn.ssl_in_use


def test_a_connection_that_left_the_machine_without_tls_is_closed(postgres_url: str) -> None:
    parts = urlsplit(postgres_url)
    elsewhere = f"host=db.example hostaddr=127.0.0.1 port={parts.port} user=postgres"
    connection = psycopg.connect(elsewhere, sslmode="disable")
    way.look_back(elsewhere, connection)  # no livemode, no question
    assert not connection.closed
    with pytest.raises(Configuration, match="without TLS"):
        way.look_back(Verified(elsewhere), connection)
    assert connection.closed


@pytest.fixture
def by_certificate(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], str]:
    """An address with a client certificate and no password, beside a password file that has
    one."""
    monkeypatch.setenv("PGPASSFILE", str(file := tmp_path / "pgpass"))
    key = tmp_path / "client.pem"
    key.write_bytes(certificates.good.read_bytes())
    file.write_text(f"*:*:*:{USER}:{SECRET}\n")
    for path in (file, key):
        path.chmod(0o600)  # the library passes over what others can read
    return lambda port: (
        f"postgresql://{USER}@{NAME}:{port}/postgres?sslmode=verify-full"
        f"&sslrootcert={certificates.authority}&sslcert={key}&sslkey={key}"
    )


def test_a_password_of_the_librarys_file_is_bound_or_refused(
    server: Postgres, by_certificate: Callable[[int], str]
) -> None:
    address = by_certificate(server.port)
    connection = psycopg.connect(address)
    way.look_back(address, connection)  # no livemode, no question
    way.look_back(VerifiedPooled(address), connection)  # which can't bind one
    connection.execute("SELECT 1")
    with pytest.raises(Configuration, match="add channel_binding=require") as caught:
        way.look_back(Verified(address), connection)
    assert connection.closed
    assert SECRET not in str(caught.value)
    with pytest.raises(Configuration, match="PGPASSFILE"):
        connect(Verified(address), application="tests")
    bound = Verified(f"{address}&channel_binding=require")
    with contextlib.closing(connect(bound, application="tests")) as connected:
        assert connected.pgconn.used_password


def test_a_password_that_stays_on_the_machine_is_bound_to_nothing(
    server: Postgres, by_certificate: Callable[[int], str]
) -> None:
    address = by_certificate(server.port).replace("verify-full", "disable")
    here = Verified(address.replace(f"@{NAME}:", "@127.0.0.1:"))
    with contextlib.closing(connect(here, application="tests")) as connection:
        assert connection.pgconn.used_password


def test_a_way_that_stays_on_the_machine_needs_no_tls(postgres_url: str) -> None:
    with contextlib.closing(connect(Verified(postgres_url), application="tests")) as connection:
        assert not connection.pgconn.ssl_in_use
