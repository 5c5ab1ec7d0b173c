"""What a vendor's event is called, which lane it takes, when it is tried again. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

JITTER: Final = 0.1
"""Added only: what failed in one outage comes back spread over a tenth of its rung."""
SHOWN_MAX: Final = 255
"""Characters of a reference that are stored to be looked at. It is hashed whole."""

_OWN_ID: Final = re.compile(r"[\x20-\x7e]{1,128}")
_TYPE: Final = re.compile(r"[\x21-\x7e]{1,128}")


def event_id(own: object, body: bytes, reference: str | None) -> str:
    """The name under which a delivery is kept: the vendor's own id if it is one, else the
    digest of the verified body with its reference, which a repeat repeats."""
    if isinstance(own, str) and _OWN_ID.fullmatch(own):
        return own
    said = (reference or "").encode()
    digest = hashlib.sha256(b"%d:%b" % (len(said), said) + body)
    return f"sha256:{digest.hexdigest()}"


def type_of(said: object) -> str:
    """The event's type; "" for what is no word, which only a function for all types takes."""
    return said if isinstance(said, str) and _TYPE.fullmatch(said) else ""


def reference_of(said: object) -> str | None:
    """What an event is about, as text of any length; a whole number counts as its digits."""
    if isinstance(said, bool):
        return None
    return str(said) if isinstance(said, int | str) and said != "" else None


def lane(vendor: str, account: str, reference: str | None, event_id: str = "") -> str:
    """The lane of the queue `inbox` in which everything about `reference` takes turns; an
    event without one has a lane of its own."""
    about = ("reference", reference) if reference is not None else ("event", event_id)
    # Each part with its length: no two lists of parts read the same.
    parts = [part.encode() for part in (vendor, account, *about)]
    text = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return hashlib.sha256(text).hexdigest()[:40]


def next_delay(rungs: tuple[float, ...], failed: int, *, spread: float) -> float | None:
    """Seconds from a failed attempt to the next; None when the ladder is at its end. `failed`
    attempts stood before this one; `spread` in [0, 1) is the jitter's dice."""
    if failed >= len(rungs):
        return None
    return rungs[max(failed, 0)] * (1 + JITTER * spread)


def look_up(sources: Iterable[str], json: Any, headers: Mapping[str, str]) -> object:
    """The first of `sources` that says something: `header:x-name`, or a path of keys into the
    body, `data.object.id`. None if none does."""
    for source in sources:
        kind, _, name = source.partition(":")
        found = headers.get(name.lower()) if kind == "header" else _dig(json, source)
        if found is not None and found != "":
            return found
    return None


def _dig(value: Any, path: str) -> object:
    for key in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    found: object = value
    return found
