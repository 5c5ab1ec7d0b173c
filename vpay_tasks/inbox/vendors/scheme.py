"""What a scheme is: how its secrets become keys, how a delivery is checked, and where an
event says what it is unless the settings say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vpay_tasks.inbox.verify import Headers

SECRET_MIN: Final = 16
"""Characters of a secret. Shorter ones can be guessed by trying."""


@dataclass(frozen=True)
class Rules:
    """What a check compares with. `now` is Unix seconds."""

    now: float
    tolerance: float
    header: str


Sources = tuple[str, ...]
"""Where to look, in order: `header:x-name`, or keys into the body, `data.object.id`."""


@dataclass(frozen=True)
class Scheme:
    """One way to sign. `check` answers the place of the key that it was signed with, or raises
    Refused; `key` raises ValueError, with what is wrong, for a secret that can't be one."""

    check: Callable[[Headers, bytes, Sequence[bytes], Rules], int]
    key: Callable[[str], bytes]
    id: Sources
    type: Sources
    reference: Sources
    timed: bool
    """Whether it signs a time, so that an old delivery can't be sent again later."""
    header: str
    """Of the signature or token; another name only where `header_is_free`."""
    header_is_free: bool = False
    signed_headers: tuple[str, ...] | None = ()
    """Those that may name an event or its reference: in another a stranger could write, once
    more and otherwise. None: any, where nothing is signed."""


def text_key(secret: str) -> bytes:
    """The secret's own text as the key."""
    if len(secret.strip()) < SECRET_MIN:
        raise ValueError(f"needs at least {SECRET_MIN} characters")
    return secret.encode()
