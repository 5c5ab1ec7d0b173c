"""A TCP proxy that a test can make hold what it should pass on."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards to `target`; while held, bytes from clients are read and kept back."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._passing = threading.Event()
        self._passing.set()
        self._refusing = threading.Event()
        self._cutting = threading.Event()
        self._swallowing = threading.Event()
        self._answers_left = 0
        self._then_refuse = False
        self.kept_back = threading.Event()
        """Set once a client has sent something that is kept back."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def hold(self) -> None:
        self._passing.clear()

    def release(self) -> None:
        self._passing.set()

    def cut(self) -> None:
        """End every connection that stands."""
        for item in self._sockets:
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)

    def cut_on_answer(self, *, skip: int = 0) -> None:
        """Let questions through and cut the connection at the answer after `skip` others:
        whoever asked can't know whether it was done."""
        self._answers_left = skip
        self._cutting.set()

    def refuse_after_answer(self) -> None:
        """Cut the connection at its next answer, and be down from then on."""
        self._then_refuse = True
        self.cut_on_answer()

    def swallow_commit(self) -> None:
        """Let everything through but the next COMMIT, at which the connection is cut."""
        self._swallowing.set()

    def refuse(self) -> None:
        """Be a server that is down: cut what stands, hang up on who comes."""
        self._refusing.set()
        self.cut()

    def accept_again(self) -> None:
        self._refusing.clear()

    def close(self) -> None:
        self._passing.set()
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing.is_set():
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._sockets += [client, server]
            for source, sink, held in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, sink, held), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, held: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if held and not self._passing.is_set():
                    self.kept_back.set()
                    self._passing.wait()
                if held and self._swallowing.is_set() and b"COMMIT" in data:
                    self._swallowing.clear()
                    break
                if not held and self._cutting.is_set():
                    if self._answers_left == 0:
                        self._cutting.clear()
                        if self._then_refuse:
                            self._then_refuse = False
                            self._refusing.set()
                        break
                    self._answers_left -= 1
                sink.sendall(data)
        for item in (source, sink):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()


@contextlib.contextmanager
def before(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the server of `url`, and the URL that leads through it."""
    parts = urlsplit(url)
    proxy = Proxy((parts.hostname or "127.0.0.1", parts.port or 0))
    through = parts._replace(netloc=parts.netloc.rsplit(":", 1)[0] + f":{proxy.port}")
    try:
        yield proxy, urlunsplit(through)
    finally:
        proxy.close()
