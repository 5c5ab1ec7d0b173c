"""Sentry's side: a real HTTP server that takes envelopes in, or is rude."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "4f5d1c9ab0e84c1d9f3aa61be1a2c3d4"


class Ingest:
    """`envelopes` are the bodies as they were sent, unpacked; `held` counts the requests that
    are not answered while `silent` is set."""

    def __init__(self) -> None:
        self.envelopes: list[bytes] = []
        self.heads: list[str] = []
        self.held = 0
        self.silent = threading.Event()
        self.released = threading.Event()
        ingest = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                ingest.heads.append(f"{self.requestline}\n{self.headers}")
                if ingest.silent.is_set():
                    ingest.held += 1
                    ingest.released.wait()
                ingest.envelopes.append(body)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name for it
                """Nothing: the test's own output is what is read."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False

    @property
    def dsn(self) -> str:
        return f"http://{KEY}@127.0.0.1:{self.server.server_address[1]}/42"

    def events(self) -> list[dict[str, Any]]:
        """The events of all envelopes: a head, then head and body of each item, a line each."""
        found = []
        for envelope in self.envelopes:
            _, *items = envelope.decode().strip().split("\n")
            for head, body in zip(items[::2], items[1::2], strict=True):
                assert json.loads(head)["type"] == "event"
                found.append(json.loads(body))
        return found

    def said(self, sentence: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["message"] == sentence]


@contextmanager
def ingest() -> Iterator[Ingest]:
    """Listens on 127.0.0.1 for as long as the block."""
    made = Ingest()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.released.set()
        made.server.shutdown()
        made.server.server_close()
        thread.join(10)
