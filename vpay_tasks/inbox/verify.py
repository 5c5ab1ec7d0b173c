"""What every scheme's check is made of: headers read in one way, one refusal, comparisons
that tell nothing by the time they take.

A check reads no JSON: nothing of a body is looked at before its signature is known good.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from vpay_tasks.errors import Authentication

HEADER_MAX: Final = 2_048
"""Characters of a header that is read. Eight signatures and a time need 560."""
SIGNATURES_MAX: Final = 8
"""In one header. Each costs a comparison per secret: a header can't be made expensive."""

HEX: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TIME: Final = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)


class Reason(Enum):
    """Why a delivery was refused: for our own log and counters, never for its sender."""

    MISSING = "missing"
    """It has no signature."""
    MALFORMED = "malformed"
    STALE = "stale"
    """Its time is too far from ours: a replay, or a clock that is wrong."""
    MISMATCH = "mismatch"
    """Signed with none of our secrets, or not this body."""


class Refused(Authentication):
    """Its text is always the same: whoever sent the request learns nothing."""

    def __init__(self, reason: Reason) -> None:
        super().__init__("the webhook's signature was refused")
        self.reason = reason


HeadersLike = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]


class Headers:
    """A request's headers, whatever framework they come from; names in any case."""

    def __init__(self, given: HeadersLike) -> None:
        pairs = given.items() if isinstance(given, Mapping) else given
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(_text(name).lower(), []).append(_text(value))

    def one(self, name: str) -> str:
        """The value of a header that decides something. Raises Refused if it is not there, or
        there twice: proxies and frameworks differ in which one they believe."""
        values = self._values.get(name.lower(), [])
        if not values:
            raise Refused(Reason.MISSING)
        if len(values) > 1 or len(values[0]) > HEADER_MAX or not values[0].isascii():
            raise Refused(Reason.MALFORMED)
        return values[0]

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def singles(self) -> dict[str, str]:
        """Those that stand once, by lower-case name."""
        return {name: values[0] for name, values in self._values.items() if len(values) == 1}


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def check_time(said: str, *, tolerance: float, now: float) -> None:
    """Raise Refused unless `said`, in whole Unix seconds, is near `now`."""
    if not _TIME.fullmatch(said):
        raise Refused(Reason.MALFORMED)
    # Written so that NaN, which compares false with everything, is refused.
    if not abs(now - int(said)) <= tolerance:
        raise Refused(Reason.STALE)


def matching(
    keys: Sequence[bytes], given: Sequence[bytes], expected: Callable[[bytes], bytes]
) -> int:
    """The place of the key that made one of the signatures `given`. All against all, without
    an early end: the time tells nothing. Raises Refused."""
    if not 1 <= len(given) <= SIGNATURES_MAX:
        raise Refused(Reason.MALFORMED)
    found = -1
    for place, key in enumerate(keys):
        right = expected(key)
        for signature in given:
            if hmac.compare_digest(right, signature):
                found = place
    if found < 0:
        raise Refused(Reason.MISMATCH)
    return found


def hmac_sha256(key: bytes, signed: bytes) -> bytes:
    return hmac.new(key, signed, hashlib.sha256).digest()
