"""What every broker must do: the same cases against Valkey and RabbitMQ."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import dramatiq
import pytest

from tests.brokers import BrokerServer
from tests.conftest import Eventually
from vpay_sandbox.valkey import Valkey
from vpay_tasks import telemetry
from vpay_tasks.errors import Broker, Configuration
from vpay_tasks.runtime.broker import make
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.envelope import Envelope, encode

Made = Callable[..., CarryingBroker]


def envelopes(count: int, queue: str = "default") -> list[Envelope]:
    return [Envelope(queue, (n, n + 1_000), uuid.uuid4()) for n in range(1, count + 1)]


class Worker:
    """A process's consumer of one queue, whose threads end when the test says so."""

    def __init__(self, broker: CarryingBroker, queue: str = "default") -> None:
        self.broker = broker
        self.consumer = broker.consume(queue)
        self.running: list[dramatiq.MessageProxy] = []
        self.got: list[Envelope] = []

    def look(self) -> bool:
        """One step of its consumer thread; whether a message came."""
        message = next(self.consumer)
        if message is None:
            return False
        envelope = self.broker.held.take(message.args[0])
        assert envelope is not None
        self.running.append(message)
        self.got.append(envelope)
        return True

    def look_for(self, wanted: list[Envelope], *, in_order: bool = True) -> bool:
        while len(self.got) < len(wanted) and self.look():
            pass
        if in_order:
            assert self.got == wanted
        return {one.token for one in self.got} == {one.token for one in wanted}

    def end_one(self) -> None:
        self.consumer.ack(self.running.pop(0))


@pytest.fixture
def made(any_broker: BrokerServer) -> Iterator[Made]:
    """`made(threads=…)` is a process's broker."""
    yield from _made(any_broker.url())


def _made(url: str) -> Iterator[Made]:
    brokers = []

    def make_one(*, threads: int = 8, queues: tuple[str, ...] = ("default",)) -> CarryingBroker:
        broker = make(url)
        broker.threads = threads
        for queue in queues:
            broker.declare_queue(queue)
        brokers.append(broker)
        return broker

    yield make_one
    for broker in brokers:
        broker.draining.set()
        broker.close()


@pytest.fixture
def worker(made: Made) -> Iterator[Callable[..., Worker]]:
    """`worker(threads=…)` is a process that consumes the queue "default"."""
    workers = []

    def start(**options: int) -> Worker:
        workers.append(Worker(made(**options)))
        return workers[-1]

    yield start
    for one in workers:
        one.consumer.close()


Starts = Callable[..., Worker]


def test_many_published_at_once_arrive_in_order_and_once(
    any_broker: BrokerServer, made: Made, worker: Starts, eventually: Eventually
) -> None:
    sent = envelopes(100)
    made().publish(sent)
    reader = worker(threads=200)
    eventually(lambda: reader.look_for(sent))
    assert not reader.look()
    assert any_broker.depth("default") == 0


def test_one_message_travels_and_nothing_is_published_for_nothing(
    made: Made, worker: Starts, eventually: Eventually
) -> None:
    publisher, reader = made(), worker()
    publisher.publish([])
    sent = envelopes(1)
    publisher.publish(sent)
    eventually(lambda: reader.look_for(sent))


def test_the_wire_carries_the_envelope_and_nothing_else(
    any_broker: BrokerServer, made: Made
) -> None:
    sent = envelopes(3)
    made().publish(sent)
    assert any_broker.pull("default") == [encode(one) for one in sent]


def test_a_queue_that_nobody_has_declared_keeps_what_is_published(
    made: Made, worker: Starts, eventually: Eventually
) -> None:
    sent = envelopes(2, "other")
    made(queues=()).publish(sent)
    reader = Worker(made(queues=("other",)), "other")
    eventually(lambda: reader.look_for(sent))
    reader.consumer.close()


def test_a_process_holds_no_more_than_its_threads_can_run(
    made: Made, worker: Starts, eventually: Eventually
) -> None:
    sent = envelopes(7)
    made().publish(sent)
    reader = worker(threads=3)
    eventually(lambda: reader.look_for(sent[:3]))
    assert not any(reader.look() for _ in range(3))
    reader.end_one()
    eventually(reader.look)
    assert not any(reader.look() for _ in range(3))
    assert len(reader.got) == 4


def test_what_a_full_process_has_no_thread_for_is_run_by_another(
    made: Made, worker: Starts, eventually: Eventually
) -> None:
    sent = envelopes(9)
    full, free = worker(threads=4), worker(threads=20)
    made().publish(sent[:4])
    eventually(lambda: full.look_for(sent[:4]))
    made().publish(sent[4:])
    full.look()  # half a second in which none of its jobs ends
    eventually(lambda: free.look_for(sent[4:], in_order=False))


def test_a_process_that_was_full_takes_its_share_again(
    made: Made, worker: Starts, eventually: Eventually
) -> None:
    sent = envelopes(12)
    reader = worker(threads=4)
    made().publish(sent)
    eventually(lambda: reader.look_for(sent[:4]))
    assert not reader.look()
    reader.end_one()
    eventually(reader.look)
    for _ in range(4):
        reader.end_one()
    eventually(lambda: reader.look() and len(reader.running) == 4)
    for _ in range(4):
        reader.end_one()
    eventually(lambda: reader.look_for(sent, in_order=False))


def test_a_thread_stays_free_where_several_queues_are_served(made: Made) -> None:
    assert made(threads=4, queues=("default",)).in_flight_max() == 4
    assert made(threads=4, queues=("default", "other")).in_flight_max() == 3
    assert made(threads=1, queues=("default", "other")).in_flight_max() == 1


def test_messages_that_are_not_ours_are_counted_and_harm_no_neighbour(
    any_broker: BrokerServer, worker: Starts, eventually: Eventually
) -> None:
    before = telemetry.counts().get("messages_refused", 0)
    first, last = envelopes(2)
    foreign = encode(Envelope("other", (1,), uuid.uuid4()))
    poison = [b"\xff\x00", b"{}", b"x" * 5_000, foreign]
    any_broker.push("default", [encode(first), *poison, encode(last)])
    reader = worker()
    eventually(lambda: reader.look_for([first, last]))
    assert telemetry.counts()["messages_refused"] - before == 4
    assert not reader.look()
    assert any_broker.depth("default") == 0


def test_a_draining_process_takes_nothing_more(
    any_broker: BrokerServer, made: Made, worker: Starts, eventually: Eventually
) -> None:
    sent = envelopes(5)
    reader, other = worker(threads=2), worker()
    made().publish(sent)
    eventually(lambda: reader.look_for(sent[:2]))
    reader.broker.draining.set()
    reader.end_one()
    assert not any(reader.look() for _ in range(3))
    eventually(lambda: other.look_for(sent[2:], in_order=False))


def test_a_pop_that_was_under_way_at_the_signal_is_given_back(
    made: Made, worker: Starts, eventually: Eventually
) -> None:
    given_back: list[Envelope] = []
    consuming = worker()
    consuming.broker.give_back = given_back.append
    sent = envelopes(1)
    looking = threading.Thread(target=consuming.look)
    publisher = made()
    looking.start()  # waits in the broker for about a second
    consuming.broker.draining.set()
    eventually(lambda: _published(publisher, sent))
    looking.join()
    # It came out of the broker, or is still in it for the others; it lies here no longer.
    assert consuming.got == []
    assert all(one in sent for one in given_back)
    assert consuming.broker.held.take_all() == []


def test_a_broker_that_is_down_fails_the_publish_and_serves_the_next_one(
    any_broker: BrokerServer, made: Made, worker: Starts, eventually: Eventually
) -> None:
    publisher, reader = made(), worker()
    first, second = envelopes(1), envelopes(1)
    publisher.publish(first)
    eventually(lambda: reader.look_for(first))
    any_broker.stop()
    with pytest.raises(Broker):
        publisher.publish(envelopes(1))
    with pytest.raises(Broker):
        publisher.ping()
    assert not reader.look()  # it waits; it never raises
    any_broker.start()
    publisher.ping()
    publisher.publish(second)
    eventually(lambda: reader.look_for([*first, *second]))


def test_lost_connections_are_replaced_without_failing_the_next_publish(
    any_broker: BrokerServer, made: Made, worker: Starts, eventually: Eventually
) -> None:
    publisher, reader = made(), worker()
    first, second = envelopes(1), envelopes(1)
    publisher.publish(first)
    eventually(lambda: reader.look_for(first))
    any_broker.cut()
    publisher.publish(second)
    eventually(lambda: reader.look_for([*first, *second]))


def test_a_queue_that_was_deleted_is_there_again(
    any_broker: BrokerServer, made: Made, worker: Starts, eventually: Eventually
) -> None:
    publisher, reader = made(), worker()
    first, second = envelopes(1), envelopes(1)
    publisher.publish(first)
    eventually(lambda: reader.look_for(first))
    any_broker.forget("default")
    eventually(lambda: not reader.look())
    # The dispatcher may be told; then it releases the claims and publishes anew.
    eventually(lambda: _published(publisher, second))
    eventually(lambda: reader.look_for([*first, *second]))


def test_a_starved_broker_refuses_at_once_and_takes_the_next_when_fed(
    any_broker: BrokerServer, made: Made, worker: Starts, eventually: Eventually
) -> None:
    publisher, reader = made(), worker()
    publisher.publish(envelopes(1))
    eventually(reader.look)
    any_broker.starve()
    try:
        started = threading.Event()
        failed = threading.Event()

        def publish() -> None:
            started.set()
            with pytest.raises(Broker):
                publisher.publish(envelopes(1))
            failed.set()

        thread = threading.Thread(target=publish)
        thread.start()
        started.wait()
        assert failed.wait(3)
        thread.join()
        with pytest.raises(Broker):
            publisher.publish(envelopes(1))
    finally:
        any_broker.feed()
    last = envelopes(1)
    eventually(lambda: _published(publisher, last))
    eventually(lambda: reader.look() and reader.got[-1:] == last)


def _published(publisher: CarryingBroker, sent: list[Envelope]) -> bool:
    try:
        publisher.publish(sent)
    except Broker:
        return False
    return True


@pytest.mark.parametrize("scheme", ["kafka", "http", ""])
def test_an_unknown_scheme_is_a_fault_of_the_settings(scheme: str) -> None:
    with pytest.raises(Configuration, match="no broker speaks"):
        make(f"{scheme}://127.0.0.1/")


def test_the_only_connection_of_a_pool_is_there_to_be_used(broker_url: str) -> None:
    broker = make(f"{broker_url}?max_connections=1")
    for _ in range(2):
        broker.ping()
    broker.close()


def test_a_socket_of_the_machine_carries_messages_too(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("s")
    path = folder / "s"
    with Valkey(folder, args=("--unixsocket", str(path))):
        publisher, reader = make(f"unix://{path}?db=1"), make(f"unix://{path}?db=1")
        reader.declare_queue("default")
        publisher.ping()
        sent = envelopes(2)
        publisher.publish(sent)
        worker = Worker(reader)
        assert worker.look_for(sent)
        worker.consumer.close()
        for one in (publisher, reader):
            one.close()
