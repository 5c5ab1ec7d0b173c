"""A TCP proxy that a test can make hold, delay, lose or cut what it should pass on."""

from __future__ import annotations

import contextlib
import socket
import struct
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
        self._armed: dict[str, threading.Event] = {}
        self._silent = threading.Event()
        self._resetting = threading.Event()
        self._answers_left = 0
        self._then_refuse = False
        self._over = threading.Event()
        self.delay_s = 0.0
        """What each piece of bytes waits, in either direction."""
        self.bytes_per_s = 0.0
        """How much passes in a second and direction; 0: all of it."""
        self.pieces = 0
        """Of bytes, that were held up by either, or lost."""
        self.kept_back = threading.Event()
        """Set once a client has sent something that is kept back."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._forgotten: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def hold(self) -> None:
        self._passing.clear()

    def release(self) -> None:
        self._passing.set()

    def cut(self) -> int:
        """End every connection that stands; how many ends that were, two each."""
        standing = self._standing()
        for item in standing:
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
        return len(standing)

    def reset(self) -> int:
        """As cut, but by RST: what the other side has not read yet is gone, too."""
        self._resetting.set()
        standing = self._standing()
        for item in standing:
            with contextlib.suppress(OSError):
                item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for item in standing:
            with contextlib.suppress(OSError):
                # Wakes the thread that reads it, and tells the other side nothing; its close
                # is what resets.
                item.shutdown(socket.SHUT_RD)
        return len(standing)

    def end_resetting(self) -> None:
        """What is closed from now on is closed in good order."""
        self._resetting.clear()

    def fall_silent(self) -> None:
        """Be a server that is gone without a word: connections stand, are made, and nothing
        passes either way."""
        self._silent.set()

    def forget(self) -> None:
        """Be a proxy that hangs with what stands: it is acknowledged, and passed on to nobody.
        New connections pass."""
        with self._lock:
            self._forgotten |= self._sockets

    def speak_again(self) -> int:
        """What stood in the silence has lost bytes and is ended: no half of it may go on."""
        if not (self._silent.is_set() or self._forgotten):
            return 0
        self._silent.clear()
        return self.cut()

    def cut_on_answer(self, *, skip: int = 0) -> threading.Event:
        """Let questions through and cut the connection at the answer after `skip` others:
        whoever asked can't know whether it was done. As with its like, what is returned is set
        once this one has cut; asked for again before that, it never will have."""
        self._answers_left = skip
        return self._arm("answer")

    def refuse_after_answer(self) -> None:
        """Cut the connection at its next answer, and be down from then on."""
        self._then_refuse = True
        self.cut_on_answer()

    def swallow_commit(self) -> threading.Event:
        """Let everything through but the next COMMIT, at which the connection is cut."""
        return self._arm("before commit")

    def cut_after_commit(self) -> threading.Event:
        """Let the next COMMIT through and cut the connection at its answer: it has happened,
        and whoever sent it can't know."""
        return self._arm("after commit")

    def disarm(self, asked: threading.Event | None = None) -> None:
        """Forget that cut, or all that have not come yet."""
        for where, cut in list(self._armed.items()):
            if asked in (None, cut):
                self._armed.pop(where, None)

    def _arm(self, where: str) -> threading.Event:
        self._armed[where] = cut = threading.Event()
        return cut

    def _springs(self, where: str) -> bool:
        cut = self._armed.pop(where, None)
        if cut is not None:
            cut.set()
        return cut is not None

    def behave(self) -> None:
        """As a wire does, from now on; an end to everything that was asked of it."""
        self.delay_s = self.bytes_per_s = 0.0
        self.disarm()
        self.end_resetting()
        self.accept_again()
        self.release()
        self.speak_again()

    def refuse(self) -> None:
        """Be a server that is down: cut what stands, hang up on who comes."""
        self._refusing.set()
        self.cut()

    @property
    def down(self) -> bool:
        return self._refusing.is_set()

    def accept_again(self) -> None:
        self._refusing.clear()

    def close(self) -> None:
        self._over.set()
        self._silent.clear()
        self._passing.set()
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _standing(self) -> list[socket.socket]:
        with self._lock:
            return list(self._sockets)

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
            for item in (client, server):
                item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, server}
            for source, sink, held in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, sink, held), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, held: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if held and not self._passing.is_set():
                    self.kept_back.set()
                    self._passing.wait()
                if self._silent.is_set() or source in self._forgotten:
                    self.pieces += 1
                    continue
                if self._ends(data, held=held):
                    break
                self._hold_up(data)
                sink.sendall(data)
        # Both are shut before either is closed: whoever reads the other one would never wake, and
        # what it stands for would stay open to the end of this process.
        how = socket.SHUT_RD if self._resetting.is_set() else socket.SHUT_RDWR
        for end in (lambda item: item.shutdown(how), socket.socket.close):
            for item in (source, sink):
                with contextlib.suppress(OSError):
                    end(item)
        with self._lock:
            self._sockets -= {source, sink}
            self._forgotten -= {source, sink}

    def _ends(self, data: bytes, *, held: bool) -> bool:
        """Whether the connection is cut instead of passing `data` on; `held`: a client's."""
        if held:
            return b"COMMIT" in data and self._springs("before commit")
        if b"COMMIT\x00" in data and self._springs("after commit"):
            return True
        if "answer" in self._armed:
            if self._answers_left == 0 and self._springs("answer"):
                if self._then_refuse:
                    self._then_refuse = False
                    self._refusing.set()
                return True
            self._answers_left -= 1
        return False

    def _hold_up(self, data: bytes) -> None:
        pause = self.delay_s + (len(data) / self.bytes_per_s if self.bytes_per_s else 0.0)
        if pause:
            self.pieces += 1
            self._over.wait(pause)


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
