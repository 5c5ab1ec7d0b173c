"""Brokers by TLS, on servers that speak it: Debian's Redis and RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from tests.brokers import RabbitServer
from tests.conftest import Eventually
from tests.runtime.test_brokers import Worker, envelopes
from tests.tls import NAME, SECRET, USER, Between, Certificates
from vpay_sandbox.valkey import Valkey
from vpay_tasks.errors import Broker, Configuration
from vpay_tasks.runtime.broker import make


@dataclass
class Server:
    """A broker that speaks TLS on one port and none on the other."""

    before: str
    after: str
    """Of its URL: what stands before its host, and behind its port up to an authority's file."""
    tls: int
    plain: int
    end: str = ""

    def url(self, authority: Path, *, name: str = NAME, port: int | None = None) -> str:
        return f"{self.before}{name}:{port or self.tls}{self.after}{authority}{self.end}"


@pytest.fixture(params=["tls-redis", "tls-rabbitmq"])
def server(request: pytest.FixtureRequest) -> Server:
    user = f"{USER}:{SECRET}"
    if request.param == "tls-redis":
        own: Valkey
        own, port = request.getfixturevalue("tls_redis")
        with redis.Redis.from_url(own.url()) as client:
            client.flushall()
        return Server(f"rediss://{user}@", "/0?ssl_ca_certs=", port, own.port)
    node: RabbitServer = request.getfixturevalue("_own_rabbitmq")
    if USER not in node.control("list_users"):
        node.control("add_user", USER, SECRET)
        node.control("set_permissions", USER, ".*", ".*", ".*")
    node.forget("default")
    plain = urlsplit(node.url()).port
    assert plain
    after = "/%2F?ssl_options={'ca_certs':'"
    return Server(f"amqps://{user}@", after, node.tls_port, plain, "'}")


def test_messages_travel_by_tls_to_the_server_whose_name_its_authority_signed(
    server: Server, certificates: Certificates, eventually: Eventually
) -> None:
    address = server.url(certificates.authority)
    publisher, reading = make(address, verified=True), make(address, verified=True)
    reading.declare_queue("default")
    publisher.ping()
    sent = envelopes(3)
    publisher.publish(sent)
    worker = Worker(reading)
    eventually(lambda: worker.look_for(sent))
    worker.consumer.close()
    for one in (publisher, reading):
        one.close()


@pytest.fixture
def between(server: Server, certificates: Certificates) -> Iterator[Between]:
    """Somebody on the way, with the server's certificate of last year."""
    one = Between(server.plain, certificates.expired)
    yield one
    one.close()


def refused(address: str) -> list[str]:
    """What a person is told, by each of the ways to the broker; and a consumer waits."""
    broker = make(address, verified=True)
    broker.declare_queue("default")
    told = []
    for step in (broker.ping, lambda: broker.publish(envelopes(1))):
        with pytest.raises(Broker) as caught:
            step()
        told.append(str(caught.value))
    consumer = broker.consume("default")
    assert next(consumer) is None
    consumer.close()
    broker.close()
    assert not [text for text in told if SECRET in text or "\n" in text]
    return told


def test_another_authoritys_certificate_is_refused(
    server: Server, certificates: Certificates
) -> None:
    for told in refused(server.url(certificates.stranger)):
        assert "name the authority that signed it in broker.url" in told


def test_a_certificate_of_another_name_is_refused(
    server: Server, certificates: Certificates
) -> None:
    for told in refused(server.url(certificates.authority, name="127.0.0.1")):
        assert "write the name into broker.url that the certificate has" in told


def test_an_expired_certificate_is_refused_and_hears_nothing(
    server: Server, certificates: Certificates, between: Between
) -> None:
    for told in refused(server.url(certificates.authority, port=between.port)):
        assert "renew the certificate there" in told
    assert between.heard == b""


@pytest.mark.more(seconds=8)  # Redis waits for the rest of what it takes for a command
def test_a_server_without_tls_is_refused(server: Server, certificates: Certificates) -> None:
    broker = make(server.url(certificates.authority, port=server.plain), verified=True)
    with pytest.raises(Broker, match="no TLS is spoken there") as caught:
        broker.ping()
    assert SECRET not in str(caught.value)
    broker.close()


@pytest.mark.filterwarnings("ignore:ssl.PROTOCOL_TLS is deprecated")
@pytest.mark.parametrize(
    "url",
    [
        "rediss://:p@broker.example/?ssl_cert_reqs=none",
        "rediss://:p@broker.example/?ssl_cert_reqs=optional",
        "rediss://:p@broker.example/?ssl_check_hostname=false",
        "valkeys://:p@broker.example/?ssl_check_hostname=no",
        "amqps://u:p@broker.example/?ssl_options={'protocol':2,'ca_certs':'CA'}",
    ],
)
def test_options_that_take_any_servers_word_are_livemodes_faults(
    url: str, certificates: Certificates
) -> None:
    url = url.replace("CA", str(certificates.authority))
    make(url).close()  # a sandbox's own business
    with pytest.raises(Configuration, match="verifies the broker's certificate: take ") as caught:
        make(url, verified=True)
    assert "broker.example" not in str(caught.value)


@pytest.mark.parametrize("option", ["db=x", "socket_timeout=soon", "no_such_option=1"])
def test_an_option_that_the_library_does_not_know_is_told_before_a_thread_dies_of_it(
    option: str,
) -> None:
    with pytest.raises(Configuration, match="an option of it") as caught:
        make(f"redis://:{SECRET}@broker.example/?{option}")
    assert SECRET not in str(caught.value)
