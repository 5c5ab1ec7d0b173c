"""Standard Webhooks (Svix and others): `webhook-signature: v1,<base64> [v1,…]`, HMAC-SHA256
over `id + "." + timestamp + "." + body`, keyed by the bytes that the secret's base64 says.

Svix's own names of the three headers, `svix-…`, are taken where the standard's are not there.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Final

from vpay_tasks.inbox.vendors.scheme import Rules, Scheme
from vpay_tasks.inbox.verify import Headers, Reason, Refused, check_time, hmac_sha256, matching

KEY_MIN: Final = 24
"""Bytes of a key, the least that the standard allows."""

_PREFIXES: Final = ("webhook", "svix")
_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/]{43}=")


def check(headers: Headers, body: bytes, keys: Sequence[bytes], rules: Rules) -> int:
    prefix = next((p for p in _PREFIXES if headers.has(f"{p}-signature")), _PREFIXES[0])
    id_, time = headers.one(f"{prefix}-id"), headers.one(f"{prefix}-timestamp")
    signatures = _parsed(headers.one(f"{prefix}-signature"))
    if not _ID.fullmatch(id_) or not _only_id(headers, id_):
        raise Refused(Reason.MALFORMED)
    check_time(time, tolerance=rules.tolerance, now=rules.now)
    signed = b".".join((id_.encode(), time.encode(), body))
    return matching(keys, signatures, lambda key: hmac_sha256(key, signed))


def _only_id(headers: Headers, signed: str) -> bool:
    """Whether no other name of the header says another id. That one would not be signed: whoever
    caught a delivery could put it beside, and send the event once more as a new one."""
    names = [f"{prefix}-id" for prefix in _PREFIXES]
    return all(headers.one(name) == signed for name in names if headers.has(name))


def _parsed(header: str) -> list[bytes]:
    """The signatures of version 1; others are not for us."""
    said = [item.partition(",") for item in header.split(" ")]
    ours = [text for version, _, text in said if version == "v1"]
    if not ours or not all(map(_SIGNATURE.fullmatch, ours)):
        raise Refused(Reason.MALFORMED)
    return [base64.b64decode(text, validate=True) for text in ours]


def key(secret: str) -> bytes:
    text = secret.removeprefix("whsec_")
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64 (with or without whsec_)") from None
    if len(found) < KEY_MIN:
        raise ValueError(f"stands for fewer than {KEY_MIN} bytes")
    return found


SCHEME = Scheme(
    check=check,
    key=key,
    # Signed with the body, so it names the event even when the body is none.
    id=("header:webhook-id", "header:svix-id"),
    type=("type",),
    reference=("data.reference", "data.id"),
    timed=True,
    header="webhook-signature",
    signed_headers=("webhook-id", "svix-id"),
)
