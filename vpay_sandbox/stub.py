"""How a stub runs: in a thread of a test, or as a program of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from vpay_sandbox.control import Control, Controlled
from vpay_sandbox.desk import Desk, Service
from vpay_sandbox.httpd import HttpServer
from vpay_sandbox.process import SandboxError, end, spawn, tail


class InThread(Desk):
    """A stub in a thread of this process; a context manager, or start() and stop()."""

    def __init__(self, service: Service, *, port: int = 0) -> None:
        super().__init__(service)
        self.port = port
        self._thread: threading.Thread | None = None
        self._stopping: Callable[[], object] | None = None
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT"""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="stub", daemon=True)
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            raise SandboxError(f"the stub did not start: {self._failure}") from self._failure
        return self

    def stop(self) -> None:
        """Closes every connection, answered or not; the journal too."""
        if self._stopping is not None:
            self._stopping()
            self._stopping = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.service.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self, ready: threading.Event) -> None:
        async def serve() -> None:
            stop = asyncio.Event()
            server = HttpServer(Controlled(self))
            self.port = await server.start(self.port)
            loop = self._loop = asyncio.get_running_loop()
            self._stopping = lambda: loop.call_soon_threadsafe(stop.set)
            ready.set()
            await stop.wait()
            await server.stop()

        try:
            asyncio.run(serve())
        except OSError as error:
            self._failure = error
        finally:
            ready.set()


def run(service: Service, *, name: str, port: int) -> int:
    """The main loop of a stub's program; prints one line when ready. Returns the exit status.

    Ends on SIGTERM, SIGINT, and when the process that started it is gone.
    """
    try:
        asyncio.run(_serve(Desk(service), name, port))
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    finally:
        service.close()
    return 0


async def _serve(desk: Desk, name: str, port: int) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    parent = _watch_parent(loop, stop)
    server = HttpServer(Controlled(desk))
    try:
        port = await server.start(port)
        print(f"{name} ready on http://127.0.0.1:{port}", flush=True)
        await stop.wait()
        await server.stop()
    finally:
        if parent is not None:
            loop.remove_reader(parent)
            os.close(parent)


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> int | None:
    """A descriptor that turns readable when the parent process (not just the thread that started
    us, as a death signal would) is gone; None where the kernel has no such thing."""
    pid = os.getppid()
    try:
        parent = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
    loop.add_reader(parent, stop.set)
    if os.getppid() != pid:
        stop.set()
    return parent


class StubProcess:
    """A stub as a process: `python -m MODULE ARGS…`, ready when the constructor returns.

    `.url`, `.pid`, `.control`, `.process`; `stop()` is SIGTERM, `kill()` is kill -9.
    It dies with us. `env`: its whole environment, if not ours.
    """

    def __init__(
        self,
        module: str,
        args: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        # It runs from the folder that holds the package, which need not be installed.
        words = [str(arg.resolve()) if isinstance(arg, Path) else arg for arg in args]
        self.process: subprocess.Popen[bytes] = spawn(
            [sys.executable, "-m", module, *words],
            log=log,
            read_stdout=True,
            env=env,
            cwd=Path(__file__).resolve().parents[1],
        )
        out = self.process.stdout
        assert out is not None
        line = out.readline().decode()
        out.close()
        if " ready on " not in line:
            end(self.process, signal.SIGKILL)
            raise SandboxError(f"{module} did not start; the end of {log}:\n{tail(log)}")
        self.url = line.rpartition(" ")[2].strip()
        self.control = Control(self.url)

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> int:
        """The exit status; 0 is a clean end."""
        return end(self.process, signal.SIGTERM)

    def kill(self) -> None:
        end(self.process, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
