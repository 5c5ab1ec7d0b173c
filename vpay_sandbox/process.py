"""Child processes that never outlive this one, however it ends."""

from __future__ import annotations

import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")
# Between two looks at a condition. Shorter burns the two cores that the servers start on; longer
# shows up in every server start of the test suite.
LOOK_EVERY_S = 0.01


class SandboxError(Exception):
    """A sandbox server or stub could not be started, stopped or found."""


@dataclass(frozen=True, slots=True)
class Account:
    """The system user that a server is run as when we are root."""

    name: str
    uid: int
    gid: int


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    timeout_s: float = 20.0,
    every_s: float = LOOK_EVERY_S,
) -> None:
    """Returns once `condition()` is true; SandboxError naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise SandboxError(f"gave up after {timeout_s:g} s waiting for {what}")
        time.sleep(every_s)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now.

    It lies below the kernel's ephemeral range: while a server restarts, an outgoing connection
    of anybody could take an ephemeral port, and a client that retries against a port of that
    range can even connect to itself and believe that the server is back.
    """
    lowest = _ephemeral_start()
    for _ in range(200):
        port = random.randint(max(1024, lowest - 16_000), lowest - 1)  # noqa: S311 no secret
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SandboxError("found no free TCP port on 127.0.0.1")


def _ephemeral_start() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    # Some machines give the whole range away; then no port is better than another.
    return first if first > 4_096 else 32_768


class _Starter(threading.Thread):
    """Starts every child. The death signal follows the *thread* that forked, so a child started
    by a short-lived thread would be killed when that thread ends; this one ends with the process.
    """

    def __init__(self) -> None:
        super().__init__(name="sandbox-starter", daemon=True)
        self.pid = os.getpid()
        self._work: queue.SimpleQueue[
            tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]
        ] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            work, answer = self._work.get()
            try:
                answer.set_result(work())
            except BaseException as error:  # noqa: BLE001 the caller gets it
                answer.set_exception(error)

    def call(self, work: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._work.put((work, answer))
        return answer.result()


_starter: _Starter | None = None
_starter_lock = threading.Lock()


def _the_starter() -> _Starter:
    global _starter  # noqa: PLW0603 one thread per process
    with _starter_lock:
        # A forked copy of this process has the object but not the thread.
        if _starter is None or _starter.pid != os.getpid():
            _starter = _Starter()
            _starter.start()
        return _starter


def spawn(
    argv: Sequence[str | Path],
    *,
    log: Path | None = None,
    death: signal.Signals = signal.SIGTERM,
    env: Mapping[str, str] | None = None,
    account: Account | None = None,
    cwd: Path = Path("/"),
    read_stdout: bool = False,
) -> subprocess.Popen[bytes]:
    """Starts a program that gets the signal `death` when this process ends, even by kill -9.

    It runs in a session of its own (Ctrl-C in the terminal reaches us and not it), as `account`
    when given (we must be root), its output appended to `log`; with `read_stdout` its stdout is
    a pipe that the caller reads and closes. The pid is the program's own.
    """
    uid, gid = (account.uid, account.gid) if account else (-1, -1)
    words = [str(word) for word in (os.getpid(), int(death), uid, gid, *argv)]

    def start() -> subprocess.Popen[bytes]:
        target = os.open(log or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if read_stdout else target,
                stderr=target,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        finally:
            os.close(target)

    return _the_starter().call(start)


def end(process: subprocess.Popen[bytes], how: signal.Signals, *, timeout_s: float = 30.0) -> int:
    """Signals a child and reaps it; after `timeout_s` it is killed and SandboxError raised."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise SandboxError(
                f"{process.args!r} did not end within {timeout_s:g} s of {how.name}"
            ) from None
    return process.wait()


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a server's log, for an error text."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
