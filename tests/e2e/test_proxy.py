"""The proxy of the fault tests: what it does to bytes is what a network does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tests.conftest import Eventually
from tests.e2e import proxy
from tests.e2e.proxy import Proxy

PATIENCE_S = 20.0


@pytest.fixture
def line() -> Iterator[Proxy]:
    """Before a server that says back what it hears."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    def echo(connection: socket.socket) -> None:
        with closing(connection):
            try:
                while data := connection.recv(1_000):
                    connection.sendall(data)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    line = Proxy(server.getsockname())
    yield line
    line.close()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def dialled(line: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", line.port), timeout=PATIENCE_S)


def said_back(client: socket.socket, word: bytes) -> bytes:
    client.sendall(word)
    return client.recv(100)


def test_a_wire_that_behaves_passes_everything(line: Proxy) -> None:
    with dialled(line) as client:
        assert said_back(client, b"one") == b"one"
        line.delay_s, line.bytes_per_s = 0.01, 10_000.0
        assert said_back(client, b"two") == b"two"
        assert line.pieces == 2, "each way"
        line.behave()
        assert said_back(client, b"three") == b"three"
        assert line.pieces == 2


def test_a_cut_ends_what_stands_and_nothing_else(line: Proxy) -> None:
    with dialled(line) as client:
        assert said_back(client, b"one") == b"one"
        assert line.cut() == 2
        assert client.recv(100) == b""
    with dialled(line) as client:
        assert said_back(client, b"two") == b"two"


def test_a_reset_is_no_goodbye(line: Proxy) -> None:
    with dialled(line) as client:
        assert said_back(client, b"one") == b"one"
        assert line.reset() == 2
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    line.behave()
    with dialled(line) as client:
        assert said_back(client, b"two") == b"two"


def test_a_silent_wire_says_nothing_and_nothing_of_it_goes_on(
    line: Proxy, eventually: Eventually
) -> None:
    with dialled(line) as client:
        assert said_back(client, b"one") == b"one"
        line.fall_silent()
        client.sendall(b"two")
        eventually(lambda: line.pieces == 1)
        assert line.speak_again() == 2
        assert client.recv(100) == b"", "half of it is lost, so all of it ends"
    with dialled(line) as client:
        assert said_back(client, b"three") == b"three"


def test_a_commit_that_never_arrives_and_one_whose_answer_is_lost(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.marks (word text)")
        with proxy.before(dsn) as (line, through):
            for word, arm in (("before", line.swallow_commit), ("after", line.cut_after_commit)):
                with psycopg.connect(through) as client:
                    client.execute("INSERT INTO public.marks VALUES (%s)", (word,))
                    cut = arm()
                    with pytest.raises(psycopg.OperationalError):
                        client.commit()
                    assert cut.is_set()
        assert connection.execute("SELECT word FROM public.marks").fetchall() == [("after",)]


def test_of_several_cuts_each_knows_whether_it_was_the_one(line: Proxy) -> None:
    with dialled(line) as client:
        forgotten, replaced = line.swallow_commit(), line.cut_on_answer(skip=1)
        cut = line.cut_on_answer()
        line.disarm(forgotten)
        assert said_back(client, b"COMMIT") == b""
        assert (forgotten.is_set(), replaced.is_set(), cut.is_set()) == (False, False, True)
