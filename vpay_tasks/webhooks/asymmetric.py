"""Standard Webhooks' asymmetric signatures, `v1a`: Ed25519.

The merchant holds a public key, `whpk_…`, so whoever reads their settings can sign nothing.
`whsk_…` is the private one: the base64 of its 32-byte seed, or of seed and public key.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vpay_tasks.errors import InvalidRequest

PRIVATE: Final = "whsk_"
PUBLIC: Final = "whpk_"


def is_asymmetric(secret: str) -> bool:
    """Whether it is one of the pair, and so never the key of an HMAC."""
    return secret.startswith((PRIVATE, PUBLIC))


def signature(secret: str, signed: bytes) -> str:
    """`v1a,<base64>` of the bytes. Raises InvalidRequest for what is no private key."""
    return f"v1a,{base64.b64encode(private_key(secret).sign(signed)).decode()}"


def public_key(secret: str) -> str:
    """The `whpk_…` that a merchant is given. Raises as `signature`."""
    return PUBLIC + base64.b64encode(private_key(secret).public_key().public_bytes_raw()).decode()


def private_key(secret: str) -> Ed25519PrivateKey:
    """Raises InvalidRequest for what is no private key; its text does not quote it."""
    if not secret.startswith(PRIVATE):
        raise InvalidRequest(f"of a pair of keys, the private one ({PRIVATE}…) signs")
    try:
        raw = base64.b64decode(secret.removeprefix(PRIVATE), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"{PRIVATE}…: not base64") from None
    if len(raw) not in (32, 64):
        raise InvalidRequest(f"{PRIVATE}…: the base64 of 32 bytes, or of 64 with the public key")
    key = Ed25519PrivateKey.from_private_bytes(raw[:32])
    if raw[32:] not in (b"", key.public_key().public_bytes_raw()):
        raise InvalidRequest(f"{PRIVATE}…: its second half is not the first one's public key")
    return key
