"""A vendor that sends signed events to the inbox, some of them twice, and notes its answers."""

from __future__ import annotations

import http.client
import random
import threading
from pathlib import Path
from typing import Final

from tests.chaos.canaries import STRIPE_SECRET
from tests.inbox.signing import Delivery, by_stripe, stripe_event
from vpay_sandbox.journal import Journal

EVERY_S: Final = 0.7
PATIENCE_S: Final = 5.0
SENT_AGAIN: Final = 0.3
"""The share of events that come once more whatever was answered; what was not answered 2xx
does anyway."""


class Vendor:
    """Sends from a thread of its own between `start` and `stop`."""

    def __init__(self, port: int, seed: int, journal: Path) -> None:
        self._port = port
        self._chance = random.Random(f"vendor {seed}")
        self._journal = Journal(journal)
        self._number = 0
        self._again: list[tuple[str, bytes]] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._loop, name="vendor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns once nothing is on its way."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S + 5)

    def close(self) -> None:
        self.stop()
        self._journal.close()

    def send_rest(self) -> bool:
        """Once more whatever has had no 2xx yet, as vendors do for days; whether none is left."""
        left, self._again = self._again, []
        for name, body in left:
            self._send(name, body)
        return not self._again

    def _loop(self) -> None:
        while not self._stopping.wait(EVERY_S):
            if self._again and self._chance.random() < 0.5:
                self._send(*self._again.pop(0))
            self._number += 1
            name = f"evt_soak_{self._number}"
            body = stripe_event(name, about=f"pi_{self._chance.randrange(5)}")
            self._send(name, body)
            if self._chance.random() < SENT_AGAIN:
                self._send(name, body)

    def _send(self, name: str, body: bytes) -> None:
        status = self._post(by_stripe(body, secret=STRIPE_SECRET))
        fact = {"vendor": "stripe", "account": "", "event": name}
        self._journal.write("sent", **fact, status=status)
        if status is None or not 200 <= status <= 299:
            self._again.append((name, body))

    def _post(self, given: Delivery) -> int | None:
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            line.request("POST", "/inbox/stripe", given.body, given.headers)
            answer = line.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            line.close()
        return answer.status
