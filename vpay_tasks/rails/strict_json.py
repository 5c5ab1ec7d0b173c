"""JSON as a rail's answer may say it: what two readers could read differently is none."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

NUMBER_MAX: Final = 64
"""Characters of a number, and digits before or after its point. The longest that a rail
documents has twenty; a longer one is an attack on whoever writes it out."""


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
