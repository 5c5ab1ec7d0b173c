"""Certificates of a test's own, servers that speak TLS, and whoever stands between.

The servers of the wheels speak none. Postgres 14 does, as npm fetches it, and Debian's Redis and
RabbitMQ do: without one of them its tests are left out, loudly; where CI is set, nothing may be.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import psycopg
import pytest
import trustme

from tests.rabbit import RABBITMQ
from vpay_sandbox import install
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import free_port
from vpay_sandbox.valkey import Valkey

MAJOR: Final = 14
"""The one that .ci/run fetches anyway."""

NAME: Final = "localhost"
"""What every server's certificate says it is."""

USER: Final = "teller"
SECRET: Final = "geheim-8317"
"""The password of each server; must show nowhere."""

REDIS: Final = shutil.which("redis-server")

MISSING: Final = {
    "tls-postgres": None if shutil.which("npm") else "npm, which fetches Postgres 14",
    "tls-redis": None if REDIS else "redis-server",
    "tls-rabbitmq": None if RABBITMQ else "rabbitmq-server",
}
"""By the word that a test's parameters name it by."""


@dataclass(frozen=True)
class Certificates:
    """Files. A server's holds its key, its chain and the authority."""

    authority: Path
    stranger: Path
    """An authority that signed nothing here."""
    good: Path
    expired: Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority, stranger = trustme.CA(), trustme.CA()
    yesterday = datetime.now(UTC) - timedelta(days=1)

    def written(name: str, *parts: trustme.Blob) -> Path:
        path = folder / name
        path.write_bytes(b"".join(part.bytes() for part in parts))
        return path

    def of(name: str, leaf: trustme.LeafCert) -> Path:
        return written(name, leaf.private_key_pem, *leaf.cert_chain_pems, authority.cert_pem)

    return Certificates(
        authority=written("authority.pem", authority.cert_pem),
        stranger=written("stranger.pem", stranger.cert_pem),
        good=of("good.pem", authority.issue_cert(NAME)),
        expired=of("expired.pem", authority.issue_cert(NAME, not_after=yesterday)),
    )


class Between:
    """Somebody on the way to the server at `target`: shows `certificate`, or speaks no TLS at
    all, and passes everything on unencrypted. `greets`: answers as Postgres does whoever asks
    it for TLS."""

    def __init__(self, target: int, certificate: Path | None, *, greets: bool = False) -> None:
        self._target = ("127.0.0.1", target)
        self._greets = greets
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
        self.heard = bytearray()
        """What clients said that it could read."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def close(self) -> None:
        for item in (*self._sockets, self._listener):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _begin(self, what: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=what, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self._greets:
                client.recv(8)
                client.sendall(b"S" if self._context else b"N")
            with contextlib.ExitStack() as stack:
                heard = client
                if self._context is not None:
                    heard = stack.enter_context(self._context.wrap_socket(client, server_side=True))
                server = stack.enter_context(socket.create_connection(self._target))
                self._sockets += [heard, server]
                back = threading.Thread(target=_pump, args=(server, heard), daemon=True)
                back.start()
                _pump(heard, server, self.heard)
                back.join()


def _pump(source: socket.socket, sink: socket.socket, heard: bytearray | None = None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            if heard is not None:
                heard += data
            sink.sendall(data)
    for item in (source, sink):
        with contextlib.suppress(OSError):
            item.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="session")
def tls_postgres(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Postgres]:
    """A Postgres with TLS; USER logs in by password, by the superuser's address nobody must."""
    with Postgres(tmp_path_factory.mktemp("tls"), settings={"fsync": "off"}, version=MAJOR) as own:
        file = own.data / "server.pem"
        shutil.copy(certificates.good, file)
        file.chmod(0o600)
        if account := install.unprivileged():
            os.chown(file, account.uid, account.gid)
        hba = own.data / "pg_hba.conf"
        hba.write_text(f"host all {USER} 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")
        with psycopg.connect(own.url(), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {USER} SUPERUSER LOGIN PASSWORD '{SECRET}'")
            for name in ("ssl_cert_file", "ssl_key_file"):
                connection.execute(f"ALTER SYSTEM SET {name} = 'server.pem'")
            connection.execute("ALTER SYSTEM SET ssl = on")
        own.restart()
        yield own


@pytest.fixture(scope="session")
def tls_redis(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[tuple[Valkey, int]]:
    """A Redis, and its port with TLS. USER has a password; whoever has no name needs none."""
    assert REDIS is not None
    port, folder = free_port(), tmp_path_factory.mktemp("tls-redis")
    files = {"cert": certificates.good, "key": certificates.good, "ca-cert": certificates.authority}
    args = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    for what, path in files.items():
        args += [f"--tls-{what}-file", str(path)]
    args += ["--user", USER, "on", f">{SECRET}", "~vpay:*", "+@all"]
    with Valkey(folder, args=args, program=Path(REDIS)) as server:
        yield server, port


def _lacks(nodeid: str) -> bool:
    """Whether a test's parameters name a server that is not there."""
    words = nodeid.partition("[")[2]
    return any(what and name in words for name, what in MISSING.items())


def pytest_configure(config: pytest.Config) -> None:
    missing = [what for what in MISSING.values() if what]
    if os.environ.get("CI") and missing:
        raise pytest.UsageError(f"CI is set and missing is {missing}: nothing may be left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {item for item in items if _lacks(item.nodeid)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, what in MISSING.items():
        if what:
            terminalreporter.write_line(
                f"NOT TESTED: {name}. Its tests were left out; missing is {what}", red=True
            )
