"""A proxy before a receiver that can let half of a request through."""

from __future__ import annotations

import contextlib
import socket
import threading


class Hook:
    """Forwards to `target`, one connection at a time being held."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._half: int | None = None
        self._going = threading.Event()
        self._lost = False
        self.half_sent = threading.Event()
        """Set once a receiver has half of a request, and waits for the rest."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def halve(self, first: int) -> None:
        """Of the next request let `first` bytes through, and keep the rest until `go`."""
        self.half_sent.clear()
        self._going.clear()
        self._lost = False
        with self._lock:
            self._half = first

    def go(self, *, lost: bool = False) -> None:
        """Let the rest follow; `lost`: let it not, and end the connection."""
        self._lost = lost
        self._going.set()

    def close(self) -> None:
        self.go(lost=True)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                return
            server.settimeout(None)
            for pair in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if asks and (first := self._taken()) is not None:
                    sink.sendall(data[:first])
                    data = data[first:]
                    self.half_sent.set()
                    self._going.wait()
                    if self._lost:
                        break
                sink.sendall(data)
        for item in (source, sink):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def _taken(self) -> int | None:
        with self._lock:
            first, self._half = self._half, None
            return first
