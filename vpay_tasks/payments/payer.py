"""Payers' numbers: encrypted at rest, masked for people, readable for the rail alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from vpay_tasks.config import KeysTable
from vpay_tasks.errors import Configuration, Internal, InvalidRequest

_NUMBER: Final = re.compile(r"[1-9][0-9]{7,14}", re.ASCII)
_TRUNK_ZERO: Final = re.compile(r"\([ .-]*0")
_RUN_OF_DIGITS: Final = re.compile(r"\d(?:[\W_]*\d){6,}")
"""Seven digits with anything but letters between them, in any script."""


def number(given: object) -> str:
    """A payer's number as rails take it: country code and digits, no plus. Raises
    InvalidRequest, which never quotes it."""
    text = given if isinstance(given, str) else ""
    digits = re.sub(r"[ ().-]", "", text).removeprefix("+")
    # "+46 (0)733" says: 0733 at home, 46733 from abroad. With the zero it is another number.
    if _TRUNK_ZERO.search(text) or not _NUMBER.fullmatch(digits):
        raise InvalidRequest("payer: a phone number with its country code, 8 to 15 digits")
    return digits


def masked(digits: str) -> str:
    """What a person may see: country and last two digits."""
    return f"{digits[:3]}{'*' * (len(digits) - 5)}{digits[-2:]}"


def without_numbers(text: str) -> str:
    """`text` of a rail's with anything that could be a payer's number taken out."""
    # Normalised, so that full-width, raised and circled digits are digits.
    return _RUN_OF_DIGITS.sub("***", unicodedata.normalize("NFKC", text))


class PayerRing:
    """A ring of Fernet keys, newest first: the first encrypts, all decrypt."""

    def __init__(self, keys: Sequence[Fernet]) -> None:
        self._newest = keys[0] if keys else None
        self._ring = MultiFernet(keys) if keys else None

    def __repr__(self) -> str:
        return "PayerRing()"

    def seal(self, digits: str) -> str:
        """The encrypted number, as text. Raises Configuration without a key."""
        if self._ring is None:
            raise Configuration(
                "keys.payer_ref: no key, so a payer's number can't be stored; add one made by"
                ' python -c "from cryptography.fernet import Fernet;'
                ' print(Fernet.generate_key().decode())"'
            )
        return self._ring.encrypt(digits.encode()).decode()

    def open(self, sealed: str) -> str:
        """The number. Raises Internal when no key of the ring opens it."""
        if self._ring is not None:
            try:
                return self._ring.decrypt(sealed.encode()).decode()
            except InvalidToken:
                pass
        raise Internal("keys.payer_ref: no key of the ring opens a stored payer; put it back")

    def is_newest(self, sealed: str) -> bool:
        """Whether the newest key sealed it."""
        try:
            return self._newest is not None and bool(self._newest.decrypt(sealed.encode()))
        except InvalidToken:
            return False

    def renewed(self, sealed: str) -> str | None:
        """The same number under the newest key; None when no key of the ring opens it."""
        try:
            return None if self._ring is None else self._ring.rotate(sealed.encode()).decode()
        except InvalidToken:
            return None


def ring_of(keys: KeysTable) -> PayerRing:
    """The ring of the settings. Raises Configuration for what is no key."""
    faults: list[str] = []
    made = ring(keys, faults)
    if faults:
        raise Configuration("\n".join(faults))
    return made


def ring(keys: KeysTable, faults: list[str]) -> PayerRing:
    """The ring of the settings; what is no key is appended to `faults`, never quoted."""
    made = []
    for position, key in enumerate(keys.payer_ref):
        try:
            made.append(Fernet(key.get_secret_value()))
        except ValueError:
            faults.append(f"keys.payer_ref.{position}: not a Fernet key (32 bytes in base64)")
    return PayerRing(made)
