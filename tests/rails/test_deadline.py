"""One deadline over resolving, connecting and talking: what a server sees of a call."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Eventually
from tests.rails.test_http import call, drip, serving
from vpay_sandbox.httpd import Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import WindowsTable
from vpay_tasks.errors import Rail
from vpay_tasks.rails import dial
from vpay_tasks.rails.http import HttpAnswer, RailHttp

LONG = WindowsTable(rail_connect=20, rail_request=20)


def post(http: RailHttp, url: str, patience: float) -> HttpAnswer:
    deadline = time.monotonic() + patience
    return http.call("POST", url, headers={}, body=b"{}", deadline=deadline)


def leading_to(*addresses: tuple[str, int]) -> dial.LookUp:
    """A resolver that knows these for any name."""

    def look_up(host: str, port: int) -> Sequence[dial.Found]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, address) for address in addresses]

    return look_up


@pytest.fixture
def deaf() -> Iterator[list[socket.socket]]:
    """Eight listeners that let nobody in: their queues are full."""
    with ExitStack() as stack:
        listeners = []
        for _ in range(8):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            listeners.append(listener)
            for _ in range(3):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
        yield listeners


def heard(listener: socket.socket) -> bytes:
    """Everything that whoever has connected, or was about to, has sent."""
    listener.settimeout(0.05)
    said = b""
    while True:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            return said
        with client:
            client.settimeout(0.05)
            try:
                said += client.recv(65_536)
            except TimeoutError:
                continue


def test_a_name_that_is_resolved_too_late_sends_nothing(stub: StubRail) -> None:
    stub.script("/x", Reply(200, b"{}"), times=None)
    told, resolved = threading.Event(), threading.Event()
    patient = []

    def look_up(host: str, port: int) -> Sequence[dial.Found]:
        patient.append(told.wait(20))
        resolved.set()
        return dial.look_up("127.0.0.1", port)

    http = RailHttp("r", LONG, look_up=look_up)
    with pytest.raises(Rail):
        post(http, stub.url.replace("127.0.0.1", "rail.test") + "/x", 0.2)
    told.set()
    assert resolved.wait(20)
    assert patient == [True]  # the call ended while the resolver was still at it
    assert stub.requests() == []


def test_a_name_that_does_not_resolve_is_a_rails_error() -> None:
    def look_up(host: str, port: int) -> Sequence[dial.Found]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    for found in (look_up, leading_to(), dial.look_up):
        with pytest.raises(Rail, match=r"^r: POST /x: \w+$"):
            post(RailHttp("r", LONG, look_up=found), f"http://{'a' * 64}.test/x", 20)


def test_a_machine_without_room_for_a_thread_is_a_rails_error() -> None:
    before = threading.stack_size(1 << 46)  # more than there is: no thread starts
    try:
        with pytest.raises(Rail, match=r"^r: POST /x: no thread to keep its deadline$"):
            post(RailHttp("r", LONG), "http://name.test/x", 20)
        with pytest.raises(OSError, match="no thread"):
            dial.connect("name.test", 80, until=time.monotonic() + 20, look_up=dial.look_up)
    finally:
        threading.stack_size(before)


def test_a_live_address_behind_dead_ones_is_reached_within_one_connects_time(
    stub: StubRail, deaf: list[socket.socket]
) -> None:
    stub.script("/x", Reply(200, b"{}"))
    port = int(stub.url.rpartition(":")[2])
    dead = [listener.getsockname() for listener in deaf]
    http = RailHttp(
        "r",
        WindowsTable(rail_connect=0.9, rail_request=20),
        look_up=leading_to(*dead, ("127.0.0.1", port)),
    )
    assert post(http, "http://rail.test/x", 20).status == 200


def test_a_deadline_that_passes_while_connecting_sends_nothing(deaf: list[socket.socket]) -> None:
    # Each is let in after the deadline: who went on to the next would send there.
    dead = [listener.getsockname() for listener in deaf]
    http = RailHttp("r", LONG, look_up=leading_to(*dead))
    with pytest.raises(Rail):
        post(http, "http://rail.test/x", 0.4)
    assert [heard(listener) for listener in deaf] == [b""] * 8


CALLER = """
import sys, time
from vpay_tasks.config import WindowsTable
from vpay_tasks.errors import Rail
from vpay_tasks.rails.http import RailHttp

http = RailHttp("r", WindowsTable(rail_connect=20, rail_request=20))
try:
    deadline = time.monotonic() + float(sys.argv[2])
    http.call("POST", sys.argv[1], headers={}, body=b"{}", deadline=deadline)
except Rail as error:
    print(error)
"""


def connecting_to(port: int) -> bool:
    """Whether somebody has asked to be let in there and has had no answer (SYN_SENT)."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[2:4] == [f"0100007F:{port:04X}", "02"] for line in lines)


def test_a_process_that_was_stopped_while_it_connected_sends_nothing_when_it_wakes_too_late(
    eventually: Eventually,
) -> None:
    # One that lets nobody in: its queue is full.
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        first = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        words = [sys.executable, "-c", CALLER, f"http://127.0.0.1:{port}/x", "4"]
        caller = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE))
        stack.callback(caller.kill)
        eventually(lambda: connecting_to(port))
        caller.send_signal(signal.SIGSTOP)
        asleep = time.monotonic()
        # Now it is let in, by the kernel, which does not sleep.
        listener.accept()[0].close()
        first.close()
        eventually(lambda: not connecting_to(port))
        eventually(lambda: time.monotonic() > asleep + 4)
        caller.send_signal(signal.SIGCONT)
        said, _ = caller.communicate()
        assert said.decode().startswith("r: POST /x: ")
        assert heard(listener) == b""


def test_a_kept_connection_is_bound_by_the_next_calls_deadline_too() -> None:
    cut_off = []

    def talk(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        client.recv(65_536)
        pace = threading.Event()
        try:
            client.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(150):
                client.sendall(b"x")
                pace.wait(0.02)
        except OSError:
            cut_off.append(True)

    http = RailHttp("r", LONG)
    with serving(talk) as url:
        assert call(http, url).status == 200
        with pytest.raises(Rail, match="no answer in time"):
            call(http, url, patience=0.3)
    assert cut_off == [True]


def test_a_peer_that_drips_its_tls_handshake_is_cut_off() -> None:
    hello = b"\x16\x03\x03\x3f\xff\x02"
    with serving(lambda client: drip(client, hello)) as url, pytest.raises(Rail, match="in time"):
        post(RailHttp("r", LONG), url.replace("http:", "https:"), 0.3)
