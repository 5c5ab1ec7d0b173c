"""Identifiers: a prefix that tells a person what it names, and 120 random bits."""

from __future__ import annotations

import base64
from typing import Final, Literal

RAW_BYTES: Final = 15
"""120 bits are 24 base32 characters without padding; a clash is out of reach."""

Prefix = Literal["pi", "ch", "re", "evt", "cs", "cus", "del", "ping"]


def new_id(prefix: Prefix, raw: bytes) -> str:
    """`pi_…`: `prefix` and `raw` (15 random bytes, the caller's) in lower-case base32."""
    if len(raw) != RAW_BYTES:
        raise ValueError(f"an id is made of {RAW_BYTES} random bytes, not {len(raw)}")
    return f"{prefix}_{base64.b32encode(raw).decode('ascii').lower()}"
