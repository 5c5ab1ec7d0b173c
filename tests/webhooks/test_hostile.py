"""Receivers that are hostile before there is an answer: in the connection, and in TLS."""

from __future__ import annotations

import gzip
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.webhooks.receivers import answer, receiving, stays_open_after
from tests.webhooks.test_send import tls_for
from vpay_tasks.webhooks.connection import Deadline, connected
from vpay_tasks.webhooks.egress import SANDBOX, Address
from vpay_tasks.webhooks.send import Answer, Trouble, post

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


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["silence", "answer"])
def test_a_flood_of_records_without_data_is_cut_short(tmp_path: Path, reply: bytes) -> None:
    """OpenSSL would read it to its end, whatever the deadline."""
    server, client = tls_for(tmp_path)
    server.num_tickets = 10_000
    with receiving(stays_open_after(reply), tls=server) as receiver:
        got = post(receiver.url, {}, b"{}", rules=SANDBOX, connect=5, whole=20, tls=client)
    assert got.status is None
    assert "more than 262144 bytes came in" in got.excerpt


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("size", [0, 16_384, 1_000_000])
def test_any_size_of_body_arrives_whole_by_tls(tmp_path: Path, version: str, size: int) -> None:
    server, client = tls_for(tmp_path)
    server.maximum_version = ssl.TLSVersion[version]
    body = b"x" * size
    with receiving(answer(200, body), tls=server) as receiver:
        got = post(receiver.url, {}, body, rules=SANDBOX, connect=5, whole=20, tls=client)
    assert got.status == 200
    assert receiver.bodies() == [body]


def _at(url: str) -> Address:
    return Address(socket.AF_INET, ("127.0.0.1", int(url.split(":")[2].split("/", maxsplit=1)[0])))


def _refusing(family: socket.AddressFamily = socket.AF_INET) -> Address:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.socket(family) as nobody:
        nobody.bind((host, 0))
        return Address(family, nobody.getsockname())


def test_a_dead_address_hides_no_live_one_behind_it() -> None:
    with never_accepting() as dead, receiving() as live:
        sock, address = connected([_at(dead), _at(live.url)], Deadline(1.0))
        sock.close()
    assert address == _at(live.url)


def test_a_family_without_a_way_out_hides_not_the_other() -> None:
    with receiving() as live:
        sixes = [_refusing(socket.AF_INET6) for _ in range(8)]
        sock, address = connected([*sixes, _at(live.url)], Deadline(20))
        sock.close()
    assert address == _at(live.url)


def test_a_family_that_this_machine_has_not_is_passed_over() -> None:
    with receiving() as live:
        unknown = Address(socket.AF_APPLETALK, ("::1", 1))
        sock, address = connected([unknown, _at(live.url)], Deadline(20))
        sock.close()
    assert address == _at(live.url)


def test_of_many_addresses_few_are_tried() -> None:
    with receiving() as live, pytest.raises(ConnectionRefusedError):
        connected([*(_refusing() for _ in range(20)), _at(live.url)], Deadline(20))


def test_a_machine_without_room_for_a_thread_fails_the_attempt_alone() -> None:
    before = threading.stack_size(1 << 46)  # more than there is: no thread starts
    try:
        got = sent("http://name.invalid/", whole=20)
    finally:
        threading.stack_size(before)
    assert (got.status, got.trouble) == (None, Trouble.NAME)
    assert "no thread to ask in <- RuntimeError" in got.excerpt


def test_a_bomb_behind_a_2xx_is_a_success_whose_inside_nobody_saw() -> None:
    bomb = gzip.compress(gzip.compress(b"0" * 50_000_000))
    with receiving(answer(200, bomb, "Content-Encoding: gzip, gzip")) as receiver:
        got = sent(receiver.url, whole=20)
    assert (got.status, got.excerpt[:4]) == (200, r"\x1f")
