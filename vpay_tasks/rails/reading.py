"""What every adapter reads out of a rail's answers in the same way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from vpay_tasks.core import money
from vpay_tasks.errors import InvalidRequest, Rail, RailMismatch, sanitise
from vpay_tasks.rails.http import HttpAnswer
from vpay_tasks.rails.port import ByKey, ByReference, Inquiry, Named
from vpay_tasks.rails.token import fingerprint

NAMED_NOWHERE: Final = object()
"""For a part of a payment that a rail's answers don't name."""

SECRET: Final = re.compile(r"[!-~]{1,512}")
"""What a rail hands out to be said back to it: printable ASCII, without a space."""

_WORD: Final = re.compile(r"[A-Za-z_]{1,64}")


def same_payment(
    rail: str, inquiry: Inquiry, *, reference: object, currency: object, amount: object
) -> None:
    """Raise RailMismatch unless the answer is about our reference, amount and currency."""
    wrong = []
    if reference != inquiry.reference:
        wrong.append("reference")
    if currency is not NAMED_NOWHERE and currency != inquiry.currency:
        wrong.append("currency")
    if amount is not NAMED_NOWHERE and not money.same(amount, inquiry.amount, inquiry.currency):
        wrong.append("amount")
    if wrong:
        raise RailMismatch(
            f"{rail}: the answer about {inquiry.reference} has another {' and '.join(wrong)}"
        )


def txn_id(value: object) -> str | None:
    """The rail's own number of a payment, fit for its column; None when there is none."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**40:
        value = str(value)
    text = sanitise(value, 128).strip() if isinstance(value, str) else ""
    return text or None


def named_in(
    rail: str, body: bytes, references: Sequence[str], *, said_back: str | None = None
) -> Named:
    """What a callback names: the first usable reference under `references`, or else the
    secret under `said_back`, as its fingerprint. Raises InvalidRequest."""
    told = HttpAnswer(200, body).json_object() or {}
    for name in references:
        found = told.get(name)
        if isinstance(found, str) and 1 <= len(found) <= 128 and found.isprintable():
            return ByReference(found)
    if said_back is not None and (key := callback_key(told.get(said_back))) is not None:
        return ByKey(key)
    raise InvalidRequest(f"{rail}: a callback that names no payment")


def callback_key(secret: object) -> str | None:
    """The CALLBACK_KEY of a secret that a rail gives with its acceptance and says back in its
    callback; None for what is none."""
    if isinstance(secret, str) and SECRET.fullmatch(secret):
        return fingerprint(secret)
    return None


def shown(word: object) -> str:
    """A rail's word or code as it may stand in an error, and so in logs and plain columns.
    Rails put payers' numbers where a code should be; what could hold one is not quoted."""
    plain = isinstance(word, str) and _WORD.fullmatch(word)
    return repr(word) if plain else "an undocumented word"


def unknown_word(rail: str, word: object) -> Rail:
    """The error for a status that the rail's documents don't know."""
    return Rail(f"{rail}: status says {shown(word)}, which settles nothing")


def unexplained(rail: str, what: str, answer: HttpAnswer, code: str = "") -> Rail:
    """The error for an answer that decides nothing."""
    said = f" with {shown(code)}" if code else ""
    return Rail(f"{rail}: {what} was answered {answer.status}{said}, which settles nothing")
