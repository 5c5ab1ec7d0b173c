"""Each process with its own user of the broker, with the rights that deploy/broker/ gives it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import pika
import pytest
import redis

from tests.brokers import RabbitServer, ValkeyServer
from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet
from tests.runtime.test_brokers import envelopes
from vpay_tasks.errors import Broker
from vpay_tasks.runtime.broker import make
from vpay_tasks.runtime.carrier import key

DEPLOY = Path(__file__).parents[2] / "deploy" / "broker"
PASSWORD = "geheim-5521"


def _as(user: str, url: str) -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{PASSWORD}@{place}"))


Login = Callable[[str], str]
"""The broker's URL, as `vpay_worker` and so on."""


@pytest.fixture
def valkey(request: pytest.FixtureRequest) -> Iterator[Login]:
    server: ValkeyServer = request.getfixturevalue("_own_valkey")
    server.forget("default")
    names = []
    with redis.Redis.from_url(server.url()) as admin:
        for line in (DEPLOY / "valkey.acl").read_text("utf-8").splitlines():
            _, name, *rules = line.replace("PASSWORD", PASSWORD).split()
            admin.execute_command("ACL", "SETUSER", name, "reset", *rules)
            names.append(name)
        yield lambda user: _as(user, server.url())
        admin.acl_deluser(*names)


@pytest.fixture(params=["rabbitmq"])
def rabbit(request: pytest.FixtureRequest) -> Iterator[Login]:
    server: RabbitServer = request.getfixturevalue("_own_rabbitmq")
    server.forget("default")
    names = []
    for line in (DEPLOY / "rabbitmq.sh").read_text("utf-8").splitlines():
        if line.startswith("rabbitmqctl set_permissions"):
            _, what, name, *rights = shlex.split(line)
            server.control("add_user", name, PASSWORD)
            server.control(what, name, *rights)
            names.append(name)
    assert names == ["vpay_dispatcher", "vpay_worker", "vpay_operator"]
    yield lambda user: _as(user, server.url())
    for name in names:
        server.control("delete_user", name)


def _a_job_goes_its_way(login: Login, fleet: Fleet, board: Board, eventually: Eventually) -> None:
    fleet.extra["VPAY_BROKER_URL"] = login("vpay_dispatcher")
    dispatcher = fleet.dispatcher()
    fleet.extra["VPAY_BROKER_URL"] = login("vpay_worker")
    workers = fleet.workers()
    jobs = [board.enqueue("in_batches", {"n": n}) for n in range(3)]
    eventually(board.empty)
    assert sorted(board.runs("ended")) == jobs
    for process in (dispatcher, workers):
        assert not process.said("broker_lost")
        assert PASSWORD not in process.log.read_text("utf-8")
    doctor = make(login("vpay_operator"))
    doctor.ping()
    assert doctor.evicts() is None
    doctor.close()


@pytest.mark.more(seconds=10)
def test_on_valkey_each_process_works_with_its_own_rights(
    valkey: Login, fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    _a_job_goes_its_way(valkey, fleet, board, eventually)


@pytest.mark.more(seconds=15)
def test_on_rabbitmq_each_process_works_with_its_own_rights(
    rabbit: Login, fleet: Fleet, board: Board, eventually: Eventually
) -> None:
    _a_job_goes_its_way(rabbit, fleet, board, eventually)


NOBODYS: Final[list[tuple[Any, ...]]] = [
    ("EVAL", "return 1", 0),
    ("FUNCTION", "LIST"),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "dir", "/tmp"),
    ("FLUSHALL",),
    ("KEYS", "*"),
    ("DEL", "vpay:default"),
    ("RESTORE", "vpay:default", 0, b"x"),
    ("MODULE", "LIST"),
    ("MONITOR",),
    ("ACL", "LIST"),
    ("SHUTDOWN",),
    ("REPLICAOF", "NO", "ONE"),
    ("PUBLISH", "channel", "x"),
]
"""What an attacker would go on with."""


def test_a_user_of_valkey_may_do_nothing_else(valkey: Login) -> None:
    others: dict[str, list[tuple[Any, ...]]] = {
        "vpay_dispatcher": [("BLMPOP", 0.01, 1, "vpay:default", "LEFT"), ("RPUSH", "other", "x")],
        "vpay_worker": [("RPUSH", "vpay:default", "x"), ("BLMPOP", 0.01, 1, "other", "LEFT")],
        "vpay_operator": [("RPUSH", "vpay:default", "x")],
    }
    for user, more in others.items():
        with redis.Redis.from_url(valkey(user)) as client:
            assert client.ping()
            for command in (*NOBODYS, *more):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command)


def test_a_user_of_rabbitmq_may_do_nothing_else(rabbit: Login) -> None:
    worker = make(rabbit("vpay_worker"))
    with pytest.raises(Broker, match="ACCESS_REFUSED"):
        worker.publish(envelopes(1))
    worker.close()
    reaches: dict[str, Callable[[Any], Any]] = {
        "vpay_dispatcher": lambda channel: channel.basic_get(key("default")),
        "vpay_operator": lambda channel: channel.basic_get(key("default")),
        "vpay_worker": lambda channel: channel.queue_declare("another"),
    }
    for user, reach in reaches.items():
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            connection = pika.BlockingConnection(pika.URLParameters(rabbit(user)))
            try:
                reach(connection.channel())
            finally:
                connection.close()
