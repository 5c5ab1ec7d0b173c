"""What only RabbitMQ can do to us."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator

import pika
import pytest

from tests.brokers import RabbitServer
from tests.conftest import Eventually
from tests.e2e import proxy
from tests.runtime.test_brokers import Made, Worker, _made, envelopes
from vpay_tasks.errors import Broker, Configuration
from vpay_tasks.runtime.broker import make
from vpay_tasks.runtime.carrier import key


@pytest.fixture
def made(rabbitmq: RabbitServer) -> Iterator[Made]:
    yield from _made(rabbitmq.url())


@pytest.fixture
def worker(made: Made) -> Iterator[Worker]:
    worker = Worker(made(threads=2))
    yield worker
    worker.consumer.close()


def unacknowledged(rabbitmq: RabbitServer) -> int:
    told = rabbitmq.control("list_queues", "--formatter", "json", "name", "messages_unacknowledged")
    rows = {row["name"]: int(row["messages_unacknowledged"]) for row in json.loads(told)}
    return rows[key("default")]


def test_queues_survive_a_node_and_its_restart(rabbitmq: RabbitServer, made: Made) -> None:
    made().publish(envelopes(1))
    told = json.loads(
        rabbitmq.control("list_queues", "--formatter", "json", "name", "type", "durable")
    )
    assert told == [{"name": key("default"), "type": "quorum", "durable": True}]


def test_this_server_ends_channels_that_keep_a_message_too_long(
    rabbitmq: RabbitServer, eventually: Eventually
) -> None:
    """What the tests below rest on: the server's patience is 2 s here."""
    rabbitmq.push("default", [b"kept"])
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq.url()))
    channel = connection.channel()
    channel.basic_consume(key("default"), lambda *_: None)

    def ended() -> bool:
        connection.process_data_events(time_limit=0)
        return bool(channel.is_closed)

    eventually(ended)
    connection.close()


def test_a_message_that_runs_is_acknowledged_already(
    rabbitmq: RabbitServer, made: Made, worker: Worker, eventually: Eventually
) -> None:
    sent = envelopes(2)
    made().publish(sent)
    eventually(lambda: worker.look_for(sent))
    assert unacknowledged(rabbitmq) == 0
    assert rabbitmq.depth("default") == 0


def test_a_job_longer_than_the_servers_patience_is_delivered_once(
    rabbitmq: RabbitServer, made: Made, worker: Worker, eventually: Eventually
) -> None:
    first, second = envelopes(1), envelopes(1)
    publisher = made()
    publisher.publish(first)
    eventually(lambda: worker.look_for(first))
    witness = pika.BlockingConnection(pika.URLParameters(rabbitmq.url()))
    kept = witness.channel()
    rabbitmq.push("other", [b"kept"])
    kept.basic_consume(key("other"), lambda *_: None)

    def witness_lost() -> bool:
        """A channel that keeps a message from now on has been ended by the server."""
        assert not worker.look() or worker.got == first
        witness.process_data_events(time_limit=0)
        return bool(kept.is_closed)

    eventually(witness_lost)
    witness.close()
    assert worker.got == first
    worker.end_one()
    publisher.publish(second)
    eventually(lambda: worker.look_for([*first, *second]))


def test_what_comes_while_a_consumer_waits_and_a_drain_begins_stays_in_the_queue(
    rabbitmq: RabbitServer, made: Made, worker: Worker, eventually: Eventually
) -> None:
    publisher = made()
    publisher.publish(envelopes(1))
    eventually(worker.look)
    worker.end_one()
    waiting = threading.Thread(target=worker.look)
    waiting.start()
    worker.broker.draining.set()
    publisher.publish(envelopes(1))
    waiting.join()
    assert len(worker.got) == 1
    worker.look()
    eventually(lambda: rabbitmq.depth("default") == 1)


def test_the_publishers_connection_lives_while_nothing_is_published(
    rabbitmq: RabbitServer, made: Made, eventually: Eventually
) -> None:
    publisher = made()
    publisher._parameters.heartbeat = 1  # type: ignore[attr-defined]
    publisher.publish(envelopes(1))
    before = received(rabbitmq)
    assert len(before) == 1
    # Each heartbeat is 8 bytes; a server that hears none for two intervals hangs up.
    eventually(lambda: received(rabbitmq)[0] - before[0] >= 64)
    publisher.publish(envelopes(1))


def received(rabbitmq: RabbitServer) -> list[int]:
    """Bytes received on each connection that names itself ours."""
    columns = ("client_properties", "recv_oct")
    told = json.loads(rabbitmq.control("list_connections", "--formatter", "json", *columns))
    return [int(row["recv_oct"]) for row in told if "vpay" in str(row)]


def test_a_queue_of_other_arguments_is_refused_with_what_to_do(
    rabbitmq: RabbitServer, made: Made, worker: Worker
) -> None:
    with rabbitmq.channel() as channel:
        channel.queue_declare(key("default"), durable=True)
    publisher = made()
    with pytest.raises(Broker, match="delete_queue"):
        publisher.publish(envelopes(1))
    with pytest.raises(Broker, match="delete_queue"):
        publisher.ping()
    assert not worker.look()
    # Another queue is none the worse for it, and the first one works once it is gone.
    publisher.publish(envelopes(1, "other"))
    rabbitmq.forget("default")
    publisher.publish(envelopes(1))


def test_a_publish_to_a_queue_that_vanished_is_told_or_kept(
    rabbitmq: RabbitServer, made: Made
) -> None:
    publisher = made()
    publisher.publish(envelopes(1))
    rabbitmq.forget("default")
    with pytest.raises(Broker, match="no queue"):
        publisher.publish(envelopes(3))
    publisher.publish(envelopes(3))
    assert rabbitmq.depth("default") == 3


def test_a_publish_that_nobody_confirms_is_a_failure(rabbitmq: RabbitServer) -> None:
    with proxy.before(rabbitmq.url()) as (line, through):
        publisher = make(through)
        publisher.publish(envelopes(1))
        line.hold()
        with pytest.raises(Broker, match="did not confirm"):
            publisher.publish(envelopes(1))
        line.release()
        publisher.publish(envelopes(1))
        publisher.close()


def test_without_its_library_the_settings_are_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [n for n in sys.modules if n.startswith("vpay_tasks.runtime.rabbit_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(Configuration, match=r"vpay-tasks\[rabbitmq\]"):
        make("amqp://127.0.0.1/")


def test_an_address_that_cannot_be_read_is_told_without_its_password() -> None:
    with pytest.raises(Configuration) as caught:
        make("amqp://me:geheim@127.0.0.1:many/")
    assert "geheim" not in str(caught.value)
