"""What an attempt to deliver means: the ladder, Retry-After, the digest. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

JITTER: Final = 0.1
"""Added only: an outage's deliveries come back spread over a tenth of their rung."""
LAST_RUNG_MAX: Final = 86_400.0
"""How far Retry-After may stretch the last rung, which has no next one."""
BELIEVED_MAX: Final = 366 * 86_400.0
"""A Retry-After beyond a year is a fault of the receiver and not a wish."""

OVERLOADED: Final = frozenset({429, 503})
GONE: Final = 410


class Outcome(Enum):
    """What the receiver's answer says about the delivery."""

    DELIVERED = "delivered"
    GONE = "gone"
    FAILED = "failed"


def outcome(status: int | None) -> Outcome:
    """Any 2xx is delivered, whatever its body; 410 asks to stop; the rest failed, redirects
    and silence (None) included."""
    if status is not None and 200 <= status <= 299:
        return Outcome.DELIVERED
    return Outcome.GONE if status == GONE else Outcome.FAILED


def next_delay(
    rungs: tuple[float, ...],
    recorded: int,
    *,
    spread: float,
    status: int | None = None,
    retry_after: str | None = None,
    now: float = 0.0,
) -> float | None:
    """Seconds from a failed attempt to the next; None when the ladder is at its end.

    `recorded` attempts stood on the delivery before this one; `spread` in [0, 1) is the
    jitter's dice. A Retry-After of a 429 or 503 only lengthens the rung, up to the next one.
    `now` (Unix seconds) is what a date in it is compared with.
    """
    if recorded >= len(rungs):
        return None
    rung = rungs[max(recorded, 0)]
    delay = rung * (1 + JITTER * spread)
    if status not in OVERLOADED or retry_after is None:
        return delay
    further = recorded + 1 < len(rungs)
    ceiling = rungs[recorded + 1] if further else LAST_RUNG_MAX
    wished = wish(retry_after, now)
    return delay if wished is None else max(delay, min(wished, ceiling))


_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_DATE: Final = re.compile(r"[\x20-\x7e]{16,40}")


def wish(retry_after: str, now: float) -> float | None:
    """The seconds that a Retry-After header asks for; None for garbage, for what is not
    ahead, and for what nobody can mean."""
    text = retry_after.strip(" \t")
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    elif _DATE.fullmatch(text):
        try:
            date = parsedate_to_datetime(text)
            # Without a zone it would be read in this machine's own.
            seconds = date.timestamp() - now if date.tzinfo is not None else 0.0
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    else:
        return None
    return seconds if 0 < seconds <= BELIEVED_MAX else None


@dataclass(frozen=True)
class Stamp:
    """The SHA-256 of an event's bytes, and the revision of the event they belong to."""

    digest: bytes
    revision: int


class Check(Enum):
    """Whether an event's bytes may be sent."""

    SEND = "send"
    STAMP_FIRST = "stamp_first"
    POISONED = "poisoned"


def check(stamped: Stamp | None, found: Stamp) -> Check:
    """Compare what was signed before with what would be signed now. Only a newer revision
    (an erasure) may have other bytes; a revision never goes back."""
    if stamped is None or found.revision > stamped.revision:
        return Check.STAMP_FIRST
    return Check.SEND if found == stamped else Check.POISONED
