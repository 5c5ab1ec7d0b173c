"""JSON as a rail or a vendor may say it: what two readers could read differently is none."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

NUMBER_MAX: Final = 64
"""Characters of a number, and digits before or after its point. The longest that a rail
documents has twenty; a longer one is an attack on whoever writes it out."""
DEPTH_MAX: Final = 64
"""Brackets open at once in a vendor's event. No vendor documents more than a dozen; 100,000 of
them would end the stack of a reader that recurses, ours or the next one's."""


def read(body: bytes) -> Any:
    """The value, or None for what is no JSON, says a key twice, or holds a number that is
    none. Numbers with a point are Decimals: a float would have lost what was written."""
    try:
        return json.loads(
            body,
            parse_int=_whole,
            parse_float=_fraction,
            parse_constant=_refuse,
            object_pairs_hook=_once,
        )
    # ArithmeticError: Decimal's own, for an exponent that it can't hold.
    except (ValueError, ArithmeticError, RecursionError):
        return None


class Unparseable(ValueError):
    """A vendor's body that is no event. Its text is a fixed one: it quotes nothing."""


def read_event(body: bytes) -> Any:
    """The value of a body that somebody else signed. Raises Unparseable, also for what
    Postgres could not store or a program could not print: NUL, and half a surrogate pair."""
    try:
        text = body.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise Unparseable("not UTF-8") from None
    if _too_deep(text):
        raise Unparseable(f"nested deeper than {DEPTH_MAX}")
    try:
        value = json.loads(
            text,
            parse_int=_whole,
            parse_float=_fraction,
            parse_constant=_refuse,
            object_pairs_hook=_once,
        )
    except (ValueError, ArithmeticError):
        raise Unparseable("not JSON, a key that stands twice, or a number that is none") from None
    # Only an escape can spell one: the bare characters are refused above.
    if "\\u" in text and _unprintable(value):
        raise Unparseable("holds NUL or a lone surrogate")
    return value


_TOKEN: Final = re.compile(
    # A string that never ends is taken to the end, so that no quote in it is tried again.
    r"""(?P<open>[\[{])|[\]}]|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)""",
    re.DOTALL,
)


def _too_deep(text: str) -> bool:
    """Whether more than DEPTH_MAX brackets are open at once; looked at before anything
    recurses. Brackets inside strings are not brackets."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        if token["open"]:
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False


def _unprintable(value: Any) -> bool:
    match value:
        case str():
            return "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value)
        case dict():
            return any(_unprintable(key) or _unprintable(item) for key, item in value.items())
        case list():
            return any(map(_unprintable, value))
        case _:
            return False


def _whole(text: str) -> int:
    if len(text) > NUMBER_MAX:
        raise ValueError("a number of absurd length")
    return int(text)


def _fraction(text: str) -> Decimal:
    if len(text) > NUMBER_MAX:
        raise ValueError("a number of absurd length")
    number = Decimal(text)
    if abs(number.adjusted()) > NUMBER_MAX:
        raise ValueError("a number of absurd size")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that stands twice some readers take the first and some the last: with
    "FAILED" and "SUCCESSFUL" under one key, neither is what the rail said."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found
