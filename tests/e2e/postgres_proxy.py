"""A TCP proxy that reads Postgres' protocol: it can end a connection between two messages.

One thread per direction and connection. What a connection is about, its test finds out by the
backend's process id: pg_locks and pg_stat_activity name it, and so does the proxy.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

STARTUP, CANCEL, NO_ENCRYPTION = 196_608, 80_877_102, {80_877_103, 80_877_104}


class Line:
    """One connection, between its client and its backend."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client = client
        self._server = server
        self._texts: dict[bytes, bytes] = {}
        self._cutting_at_commit = False
        self._mute = False
        self._lock = threading.Lock()
        self._kept: bytearray | None = None
        self._directions = 2
        self.backend = 0
        """The process id of its backend; 0 until the server has told it."""
        self.in_transaction = False
        """Whether the server last said that a transaction is open."""
        self._failed = False
        self.answered = threading.Event()
        """Set once a whole answer is kept back: the server waits for the next question."""
        self.committed = False
        """Whether the answer that is kept back says that its transaction was committed."""
        self.commit_kept_back = threading.Event()
        """Set once a COMMIT has come that the server will never see."""
        self.ended = threading.Event()

    def hold_answers(self) -> None:
        """Keep back whatever the server says from now on."""
        with self._lock:
            self._failed = False
            self._kept = bytearray()

    def release(self) -> None:
        """Hand over what was kept back; nothing more is."""
        with self._lock:
            kept, self._kept = self._kept, None
            if kept:
                with contextlib.suppress(OSError):
                    self._client.sendall(kept)

    def cut(self) -> None:
        """End it, for both sides at once; what is kept back is lost."""
        for item in (self._client, self._server):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)

    def cut_at_commit(self) -> None:
        """End it at the client's next COMMIT, which the server then never sees."""
        self._cutting_at_commit = True

    def fall_mute(self) -> None:
        """From now on the server hears nothing of the client, which hears it."""
        self._mute = True

    def from_client(self) -> None:
        """The client's direction, until it ends."""
        with contextlib.suppress(OSError), _closing(self):
            self._introduce()
            for piece in _messages(self._client):
                if self._is_commit(piece) and self._cutting_at_commit:
                    self.commit_kept_back.set()
                    return
                if not self._mute:
                    self._server.sendall(piece)

    def from_server(self) -> None:
        """The server's direction, until it ends."""
        with contextlib.suppress(OSError), _closing(self):
            for piece in _messages(self._server):
                self._look(piece)
                with self._lock:
                    if self._kept is None:
                        self._client.sendall(piece)
                        continue
                    self._kept += piece
                if piece[:1] == b"Z":
                    self.committed = not (self._failed or self.in_transaction)
                    self.answered.set()

    def end(self) -> None:
        """One direction is over, so the other one is."""
        self.cut()
        with self._lock:
            self._directions -= 1
            if self._directions == 0:
                self._client.close()
                self._server.close()
                self.ended.set()

    def _introduce(self) -> None:
        """The messages before the first that has a type: no encryption, and who it is."""
        while True:
            size = _exactly(self._client, 4)
            rest = _exactly(self._client, int.from_bytes(size, "big") - 4)
            (code,) = struct.unpack("!I", rest[:4])
            if code in NO_ENCRYPTION:
                self._client.sendall(b"N")
                continue
            self._server.sendall(size + rest)
            if code in {STARTUP, CANCEL}:
                return

    def _is_commit(self, message: bytes) -> bool:
        """Whether a client's message has the server commit, prepared or not."""
        body = message[5:]
        match message[:1]:
            case b"Q":
                return body.startswith(b"COMMIT")
            case b"P":
                name, _, text = body.partition(b"\0")
                self._texts[name] = text
                return text.startswith(b"COMMIT")
            case b"B":
                name = body.partition(b"\0")[2].partition(b"\0")[0]
                return self._texts.get(name, b"").startswith(b"COMMIT")
        return False

    def _look(self, message: bytes) -> None:
        match message[:1]:
            case b"K":
                (self.backend,) = struct.unpack("!I", message[5:9])
            case b"E":
                self._failed = True
            case b"Z":
                self.in_transaction = message[5:6] != b"I"


class PostgresProxy:
    """Forwards to `target`, message by message."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.lines: list[Line] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def line(self, backend: int) -> Line | None:
        """The connection that this backend serves, if it goes through here."""
        found = [line for line in self.lines if line.backend == backend]
        return found[-1] if found else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self.lines:
            line.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                return
            server.settimeout(None)
            for item in (client, server):
                item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = Line(client, server)
            self.lines = [one for one in self.lines if not one.ended.is_set()] + [line]
            for pump in (line.from_client, line.from_server):
                threading.Thread(target=pump, daemon=True).start()


def before(url: str) -> tuple[PostgresProxy, str]:
    """A proxy before the server of `url`, and the URL that leads through it."""
    parts = urlsplit(url)
    proxy = PostgresProxy((parts.hostname or "127.0.0.1", parts.port or 5432))
    through = parts._replace(netloc=parts.netloc.rsplit(":", 1)[0] + f":{proxy.port}")
    return proxy, urlunsplit(through)


@contextlib.contextmanager
def _closing(line: Line) -> Iterator[None]:
    try:
        yield
    finally:
        line.end()


def _messages(source: socket.socket) -> Iterator[bytes]:
    """What comes, one whole message at a time: a type, a length, and so many bytes."""
    buffer = bytearray()
    while data := source.recv(65_536):
        buffer += data
        while len(buffer) >= 5:
            size = 1 + int.from_bytes(buffer[1:5], "big")
            if len(buffer) < size:
                break
            yield bytes(buffer[:size])
            del buffer[:size]


def _exactly(source: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = source.recv(size - len(found))
        if not data:
            raise ConnectionResetError("the client hung up")
        found += data
    return bytes(found)
