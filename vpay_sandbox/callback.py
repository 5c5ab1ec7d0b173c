"""What a rail calls back: only this machine, several times, and whatever it is answered."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from vpay_sandbox.journal import Journal

# Seconds after what it tells of. The first one may come before its receiver has written down what
# it is about, so there are more, as rails send them.
AFTER_S = (0.5, 2.0, 6.0)
# Rails give up early.
PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Callback:
    """Of one payment: where it goes, and what it says."""

    method: str
    url: str
    body: Mapping[str, Any]

    @property
    def here(self) -> bool:
        """Settings of a test may name anybody; a stub calls nobody but its own machine."""
        return urlsplit(self.url).hostname == "127.0.0.1"


class Callbacks:
    """Sends them from threads of its own, and journals each."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._timers: list[threading.Timer] = []

    def send(self, reference: str, callback: Callback, *, in_s: float = 0.0) -> None:
        """`in_s`: until what it tells of. Returns at once."""
        if not callback.here:
            return
        for after in AFTER_S:
            timer = threading.Timer(in_s + after, self._send, (reference, callback))
            timer.daemon = True
            timer.start()
            self._timers.append(timer)

    def close(self) -> None:
        """Those that are not sent by now are not sent."""
        for timer in self._timers:
            timer.cancel()

    def _send(self, reference: str, callback: Callback) -> None:
        where = urlsplit(callback.url)
        connection = http.client.HTTPConnection("127.0.0.1", where.port, timeout=PATIENCE_S)
        status = None
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(callback.method, where.path, json.dumps(callback.body), headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            pass  # nobody there: the polls find out
        finally:
            connection.close()
        self._journal.write("callback", reference=reference, status=status)
