"""What a rail's server may do to us, and how a call ends all the same."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal

import pytest

from vpay_sandbox.httpd import Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks import telemetry
from vpay_tasks.config import WindowsTable
from vpay_tasks.errors import Rail
from vpay_tasks.rails.http import HttpAnswer, RailHttp

SHORT = WindowsTable(rail_connect=0.3, rail_request=0.3)


def call(http: RailHttp, url: str, *, patience: float = 30.0) -> HttpAnswer:
    return http.call(
        "GET",
        url,
        headers={"Authorization": "Bearer canary-token"},
        deadline=time.monotonic() + patience,
    )


@contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that lets `talk` speak to one client; ends when that has returned."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65_536)
            talk(client)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/x"
    thread.join()
    listener.close()


def drip(client: socket.socket, first: bytes) -> None:
    """`first`, then a byte at a time, until the client hangs up."""
    pace = threading.Event()
    try:
        client.sendall(first)
        while True:
            client.sendall(b"x")
            pace.wait(0.02)
    except OSError:
        return


@pytest.mark.parametrize(
    "first",
    [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 100 Continue\r\n"],
    ids=["status", "headers", "body", "interim"],
)
def test_a_peer_that_drips_for_ever_is_cut_off(first: bytes) -> None:
    with serving(lambda client: drip(client, first)) as url, pytest.raises(Rail) as failure:
        call(RailHttp("r", SHORT), url)
    assert "canary" not in str(failure.value)


def test_the_deadline_is_shorter_than_a_request_may_be_if_the_caller_says_so(
    stub: StubRail,
) -> None:
    with stub.hold(), pytest.raises(Rail, match=r"no answer in time|Timeout"):
        call(RailHttp("r", WindowsTable()), f"{stub.url}/x", patience=0.3)


def test_with_no_time_left_nothing_is_sent(stub: StubRail) -> None:
    before = telemetry.counts().get("rail_calls", 0)
    with pytest.raises(Rail, match="no time was left"):
        call(RailHttp("r", SHORT), f"{stub.url}/x", patience=0.0)
    assert stub.requests() == []
    assert telemetry.counts().get("rail_calls", 0) == before


def test_an_answer_of_256_kib_is_read_and_a_byte_more_is_refused(stub: StubRail) -> None:
    http = RailHttp("r", WindowsTable())
    stub.script("/x", Reply(200, b"x" * 262_144))
    assert len(call(http, f"{stub.url}/x").body) == 262_144
    stub.script("/x", Reply(200, b"x" * 262_145))
    with pytest.raises(Rail, match="larger than 262144 bytes"):
        call(http, f"{stub.url}/x")


def test_a_redirect_is_an_answer_and_not_followed(stub: StubRail) -> None:
    stub.script("/x", Reply(307, headers={"Location": f"{stub.url}/elsewhere"}))
    assert call(RailHttp("r", WindowsTable()), f"{stub.url}/x").status == 307
    assert stub.requests("/elsewhere") == []


def test_the_environments_proxy_and_the_servers_cookie_are_not_used(
    stub: StubRail, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    monkeypatch.setenv("no_proxy", "")
    http = RailHttp("r", WindowsTable())
    stub.script("/x", Reply(200, b"{}", {"Set-Cookie": "a=b"}), times=2)
    for _ in range(2):
        assert call(http, f"{stub.url}/x").json() == {}
    assert all("cookie" not in seen.request.headers for seen in stub.requests("/x"))


def test_a_compressed_body_is_not_unpacked(stub: StubRail) -> None:
    stub.script("/x", Reply(200, b"\x1f\x8b not even gzip", {"Content-Encoding": "gzip"}))
    assert call(RailHttp("r", WindowsTable()), f"{stub.url}/x").body.startswith(b"\x1f\x8b")


def test_a_failure_is_told_without_headers_or_query(stub: StubRail) -> None:
    stub.script("*", Hangup())
    with pytest.raises(Rail) as failure:
        call(RailHttp("r", WindowsTable()), f"{stub.url}/x?key=canary-query")
    assert str(failure.value).startswith("r: GET /x: ")
    assert "canary" not in repr(failure.value)
    assert failure.value.__cause__ is None


def test_a_header_that_can_not_be_sent_is_told_without_its_value(stub: StubRail) -> None:
    with pytest.raises(Rail) as failure:
        RailHttp("r", WindowsTable()).call(
            "GET",
            f"{stub.url}/x",
            headers={"X-Key": "canary\r\nX-Other: 1"},
            deadline=time.monotonic() + 5,
        )
    assert "canary" not in str(failure.value)


def test_a_refused_connection_is_a_rails_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Rail):
        call(RailHttp("r", SHORT), f"http://127.0.0.1:{port}/x")


def test_after_a_call_was_cut_off_the_next_one_works(stub: StubRail) -> None:
    http = RailHttp("r", WindowsTable())
    with stub.hold(times=1), pytest.raises(Rail):
        call(http, f"{stub.url}/x", patience=0.2)
    stub.script("/x", Reply(200, b"{}"))
    assert call(http, f"{stub.url}/x").status == 200


ODD_JSON = [
    b"",
    b"{",
    b"\xff",
    b"NaN",
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b"[" * 100_000,
    b'{"a":1e99999999999999999999}',
    b'{"a":[{"b":1E+999}]}',
    b'{"a":1e-99999999999999999999}',
    b'{"a":%b}' % (b"9" * 65),
    b'{"a":0.%b}' % (b"9" * 65),
    b'{"a":1,"a":1}',
    b'{"a":{"b":1,"c":2,"b":3}}',
    b'{"a":1,"\\u0061":2}',
]


@pytest.mark.parametrize("body", ODD_JSON, ids=range(len(ODD_JSON)))
def test_what_is_no_json_is_none(body: bytes) -> None:
    assert HttpAnswer(200, body).json() is None


def test_numbers_with_a_point_keep_what_was_written() -> None:
    assert HttpAnswer(200, b'{"a":10.10}').json() == {"a": Decimal("10.10")}


def test_an_answer_hides_its_body() -> None:
    assert "canary" not in repr(HttpAnswer(200, b"canary"))
