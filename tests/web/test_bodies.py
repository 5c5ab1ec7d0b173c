"""Bodies that are too large, too slow or never whole: refused, and nobody else waits."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress

import pytest

from tests.conftest import Eventually
from tests.web.client import Client, to_the_end
from tests.web.conftest import Serve

PATH = "/provider/mtn_momo/callback"
BODY = json.dumps({"referenceId": "r-1"}).encode()


def head(*lines: str) -> bytes:
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def refused(answer: bytes, status: int) -> bool:
    """Whether that is what came back, once, before the server hung up."""
    lines = answer.lower().split(b"\r\n")
    return (
        lines[0].startswith(f"http/1.1 {status} ".encode())
        and b"connection: close" in lines
        and answer.count(b"HTTP/1.1") == 1
    )


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["Content-Length: 16385"], 413),
        (["Content-Length: 999999999999999999"], 413),
        (["Content-Length: 9999999999999999999"], 400),
        (["Content-Length: -1"], 400),
        (["Content-Length: 1e3"], 400),
        (["Content-Length: 5", "Content-Length: 6"], 400),
    ],
)
def test_a_size_that_can_not_be_is_refused_before_a_byte_of_it_came(
    client: Client, lines: list[str], status: int
) -> None:
    assert refused(client.bytes_back(head(*lines)), status)


def test_a_body_without_a_size_is_read_up_to_the_cap(client: Client) -> None:
    def in_one_chunk(body: bytes) -> bytes:
        return head("Transfer-Encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)

    fits = BODY + b" " * (16 * 1024 - len(BODY))
    with client.socket() as line:
        line.sendall(in_one_chunk(fits))
        assert line.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert refused(client.bytes_back(in_one_chunk(fits + b" ")), 413)


def test_what_follows_a_refused_body_is_no_request(client: Client) -> None:
    health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    assert refused(client.bytes_back(head("Content-Length: 99999") + health), 413)


def test_senders_that_drip_are_cut_off_and_nobody_waits_for_them(
    serve: Serve, eventually: Eventually
) -> None:
    with serve(body_deadline=1.0, threads=1) as client, ExitStack() as lines:
        dripping = [lines.enter_context(client.socket()) for _ in range(100)]
        for line in dripping:
            line.sendall(head("Content-Length: 16000") + BODY[:1])
        others = [client.call_back("mtn_momo", BODY).status for _ in range(20)]
        assert others == [200] * 20
        one, came = dripping[0], bytearray()
        one.setblocking(False)

        def given_up() -> bool:
            """A byte of blank at each look: the deadline is for the body as a whole."""
            try:
                to_the_end(one, came)
            except BlockingIOError:
                with suppress(ConnectionError):
                    one.sendall(b" ")
                return False
            return refused(bytes(came), 408)

        eventually(given_up)
        assert [refused(to_the_end(line), 408) for line in dripping[1:]] == [True] * 99


def test_a_sender_that_hangs_up_within_its_body_is_no_trouble(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        with client.socket() as line:
            line.sendall(head("Content-Length: 500") + BODY)
    assert client.call_back("mtn_momo", BODY).status == 200
    assert [record for record in caplog.records if record.levelname != "INFO"] == []
