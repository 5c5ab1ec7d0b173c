"""Receivers that are hostile before there is an answer: in the connection, and in TLS."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.webhooks.receivers import answer, receiving
from vpay_tasks.webhooks.egress import SANDBOX
from vpay_tasks.webhooks.send import Answer, post

SHORT_S = 0.4


def sent(url: str, *, whole: float = SHORT_S) -> Answer:
    return post(url, {}, b"{}", rules=SANDBOX, connect=whole, whole=whole)


@contextmanager
def never_accepting() -> Iterator[str]:
    """A listener whose queue is full: the kernel lets what else comes wait."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(server.getsockname())
        yield f"://127.0.0.1:{server.getsockname()[1]}/"
        for one in waiting:
            one.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_never_accepts_is_left_at_the_deadline(scheme: str) -> None:
    with never_accepting() as where:
        got = sent(scheme + where)
    assert (got.status, got.trouble) == (None, None)
    assert "TimeoutError" in got.excerpt


@contextmanager
def speaking(first: bytes, *, reset: bool) -> Iterator[str]:
    """Answers a TLS hello with `first`, and then with a reset, or with nothing more."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(4_096)
                connection.sendall(first)
                if reset:
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                else:
                    over.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize(
    ("first", "reset"),
    [
        (b"", True),
        (b"", False),
        (b"\x16\x03\x03\x00\x7a\x02\x00", True),
        (b"\x16\x03\x03\x00\x7a\x02\x00", False),
        (b"\x15\x03\x03\x00\x02\x02\x28", False),
        (b"HTTP/1.1 200 OK\r\n\r\n", False),
        (b"\x00" * 65_536, True),
    ],
    ids=["reset", "silence", "half a hello", "stalled hello", "alert", "plain", "zeros"],
)
def test_a_handshake_that_comes_to_nothing_is_an_attempt_without_an_answer(
    first: bytes, reset: bool
) -> None:
    with speaking(first, reset=reset) as url:
        got = sent(url)
    assert (got.status, got.address, got.trouble) == (None, "127.0.0.1", None)
    assert got.excerpt


def test_a_bomb_behind_a_2xx_is_a_success_whose_inside_nobody_saw() -> None:
    bomb = gzip.compress(gzip.compress(b"0" * 50_000_000))
    with receiving(answer(200, bomb, "Content-Encoding: gzip, gzip")) as receiver:
        got = sent(receiver.url, whole=20)
    assert (got.status, got.excerpt[:4]) == (200, r"\x1f")
