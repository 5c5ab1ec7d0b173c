"""Bearer tokens of rails, kept until shortly before they expire."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from vpay_tasks.errors import Rail

EARLY_S: Final = 60.0
"""A token is dropped this long before its end: one that expires on its way is a 401, and a
longer margin would mint more often than the rail likes."""


@dataclass(frozen=True)
class Token:
    """A bearer token and the seconds it lasts."""

    value: str = field(repr=False)
    lasts: float


@dataclass
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: str | None = field(default=None, repr=False)
    until: float = 0.0


class TokenCache:
    """One token per set of credentials; one thread mints while the others wait for it."""

    def __init__(
        self, mint: Callable[[float], Token], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mint = mint
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: dict[str, _Slot] = {}

    def get(self, identity: str, *, refused: str | None, deadline: float) -> str:
        """The token of `identity` (a fingerprint). `refused` is the one that was just
        answered with 401: if another thread has replaced it, theirs is taken."""
        with self._lock:
            slot = self._slots.setdefault(identity, _Slot())
        if not slot.lock.acquire(timeout=max(0.0, deadline - self._clock())):
            raise Rail("no token in time: another call was still asking for it")
        try:
            if slot.value is not None and slot.value != refused and self._clock() < slot.until:
                return slot.value
            token = self._mint(deadline)
            slot.value = token.value
            slot.until = self._clock() + token.lasts - EARLY_S
            return token.value
        finally:
            slot.lock.release()


def fingerprint(*parts: str) -> str:
    """SHA-256 over the parts with their lengths: ("ab", "c") is not ("a", "bc")."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()
