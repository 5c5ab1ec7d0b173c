"""Types of the keys that rails' settings have in common."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from vpay_tasks.core import money


def _printable(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]{1,256}", value.get_secret_value()):
        raise ValueError("1 to 256 printable ASCII characters without spaces")
    return value


def _known(value: tuple[str, ...]) -> tuple[str, ...]:
    unknown = sorted(set(value) - set(money.EXPONENTS))
    if unknown or not value:
        raise ValueError(f"ISO 4217 codes in capitals, at least one; unknown: {unknown}")
    return value


HeaderText = Annotated[str, Field(pattern=r"^[!-~]{1,256}$")]
HeaderSecret = Annotated[SecretStr, AfterValidator(_printable)]
Currencies = Annotated[tuple[str, ...], AfterValidator(_known)]
Url = Annotated[str, Field(pattern=r"^https?://[!-~]+$", max_length=512)]


def private(url: str) -> bool:
    """Whether what travels to `url` can't be read on the way: TLS, or this very machine."""
    host = urlsplit(url).hostname or ""
    local = host in ("localhost", "::1") or host.startswith("127.")
    return local or url.startswith("https://")
