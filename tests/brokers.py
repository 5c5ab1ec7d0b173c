"""Both brokers, under one set of words, for tests that each must pass.

`any_broker` is a server of this test process's own, empty, that may be stopped, killed and
starved. Its RabbitMQ half needs rabbitmq-server, which no wheel brings: without it those
tests are left out, loudly; where CI is set, nothing may be left out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Protocol

import pika
import pytest
import redis

from tests.rabbit import RABBITMQ, Rabbit
from tests.tls import Certificates
from vpay_sandbox.valkey import Valkey
from vpay_tasks.runtime.carrier import key

BROKERS = ("valkey", "rabbitmq")
QUEUES = ("default", "payments", "webhooks", "inbox", "housekeeping", "other")
CI = bool(os.environ.get("CI"))


class BrokerServer(Protocol):
    """A broker as an operator has it at hand, and what is in it as an outsider sees it."""

    name: str

    def url(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def cut(self) -> None:
        """End every connection that stands."""

    def starve(self) -> None:
        """No memory for another message."""

    def feed(self) -> None: ...

    def forget(self, queue: str) -> None:
        """Lose the queue and all its messages."""

    def push(self, queue: str, bodies: Sequence[bytes]) -> None: ...

    def pull(self, queue: str) -> list[bytes]:
        """Every message that waits there, taken out."""

    def depth(self, queue: str) -> int:
        """Messages that wait for a consumer."""


class ValkeyServer(Valkey):
    name = "valkey"

    def cut(self) -> None:
        with self._client() as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def starve(self) -> None:
        with self._client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", 1)

    def feed(self) -> None:
        with self._client() as client:
            client.config_set("maxmemory", 0)

    def forget(self, queue: str) -> None:
        with self._client() as client:
            client.delete(key(queue))

    def push(self, queue: str, bodies: Sequence[bytes]) -> None:
        with self._client() as client:
            client.rpush(key(queue), *bodies)

    def pull(self, queue: str) -> list[bytes]:
        with self._client() as client:
            found: list[bytes] = client.lpop(key(queue), 1_000) or []
            return found

    def depth(self, queue: str) -> int:
        with self._client() as client:
            return int(client.llen(key(queue)))

    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url())


class RabbitServer(Rabbit):
    name = "rabbitmq"

    def cut(self) -> None:
        self.control("close_all_connections", "a test")

    def starve(self) -> None:
        self.control("set_vm_memory_high_watermark", "0")

    def feed(self) -> None:
        self.control("set_vm_memory_high_watermark", "0.6")

    def forget(self, queue: str) -> None:
        with self.channel() as channel:
            channel.queue_delete(key(queue))

    def push(self, queue: str, bodies: Sequence[bytes]) -> None:
        with self.channel() as channel:
            channel.queue_declare(key(queue), durable=True, arguments={"x-queue-type": "quorum"})
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", key(queue), body)

    def pull(self, queue: str) -> list[bytes]:
        found = []
        with self.channel() as channel:
            while (got := channel.basic_get(key(queue), auto_ack=True))[0] is not None:
                found.append(got[2])
        return found

    def depth(self, queue: str) -> int:
        with self.channel() as channel:
            answer = channel.queue_declare(key(queue), durable=True, passive=True)
            return int(answer.method.message_count)

    @contextlib.contextmanager
    def channel(self) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(self.url()))
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()


@pytest.fixture(scope="session")
def _own_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with ValkeyServer(tmp_path_factory.mktemp("own-valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def _own_rabbitmq(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[RabbitServer]:
    folder = tmp_path_factory.mktemp("own-rabbitmq")
    with RabbitServer(folder, certificate=certificates.good) as server:
        yield server


@pytest.fixture(params=BROKERS)
def any_broker(request: pytest.FixtureRequest) -> Iterator[BrokerServer]:
    """Each broker in turn; up, fed and empty at the start."""
    server: BrokerServer = request.getfixturevalue(f"_own_{request.param}")
    _empty(server)
    yield server
    server.start()
    _empty(server)


@pytest.fixture(params=["rabbitmq"])
def rabbitmq(request: pytest.FixtureRequest) -> Iterator[RabbitServer]:
    """For what only RabbitMQ can do to us."""
    server: RabbitServer = request.getfixturevalue("_own_rabbitmq")
    _empty(server)
    yield server
    server.start()
    _empty(server)


def _empty(server: BrokerServer) -> None:
    for queue in QUEUES:
        server.forget(queue)


def _broker_of(nodeid: str) -> str | None:
    """Which broker a test's parameters name."""
    words = nodeid.partition("[")[2].rstrip("]").split("-")
    return next((broker for broker in BROKERS if broker in words), None)


def pytest_configure(config: pytest.Config) -> None:
    if CI and RABBITMQ is None:
        raise pytest.UsageError("CI is set and rabbitmq-server is missing: nothing may be left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if RABBITMQ is not None:
        return
    left_out = [item for item in items if _broker_of(item.nodeid) == "rabbitmq"]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran = [
        report
        for outcome in ("passed", "failed", "error")
        for report in terminalreporter.getreports(outcome)
        if getattr(report, "when", None) == "call"
    ]
    brokers = [_broker_of(report.nodeid) for report in ran]
    if not (any(brokers) or CI or RABBITMQ is None):
        return
    terminalreporter.section("brokers")
    for broker in BROKERS:
        terminalreporter.write_line(f"{broker}: {brokers.count(broker)} tests ran")
    if RABBITMQ is None:
        terminalreporter.write_line(
            "NOT TESTED: RabbitMQ. rabbitmq-server is missing, so its tests were left out"
            " (Debian, Ubuntu: apt-get install rabbitmq-server)",
            red=True,
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where CI is set, a skipped test is a failed one."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if CI and reporter is not None and reporter.stats.get("skipped") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
