"""Signatures: those we send, and the check that a merchant's own code can call.

`Vpay-Signature` and `Stripe-Signature` carry `t=<unix>,v1=<hex>[,v1=…]`, HMAC-SHA256 over
`t + "." + body` keyed by the secret's UTF-8 text. The `webhook-*` headers are those of
Standard Webhooks, keyed by the bytes that the secret's base64 stands for. A `whsk_` secret
is a private key: it signs by Standard Webhooks' `v1a` only (asymmetric.py).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NoReturn

from vpay_tasks.errors import Authentication, InvalidRequest
from vpay_tasks.webhooks import asymmetric
from vpay_tasks.webhooks.asymmetric import is_asymmetric

SIGNATURES_MAX: Final = 8
"""v1 parts in one header. Each costs a comparison, so a header can't be made expensive."""
HEADER_MAX: Final = 2_048
"""Eight signatures and a time need 560 characters."""
USER_AGENT: Final = "vpay-webhooks/1"

_TIME: Final = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_EVENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class SignatureRefused(Authentication):
    """The only thing `verify` raises. Its text is always the same: whoever sent the request
    learns nothing. `reason` is for your own log; it holds neither secret nor signature."""

    def __init__(self, reason: str) -> None:
        super().__init__("the webhook's signature was refused")
        self.reason = reason


@dataclass(frozen=True)
class Event:
    """A verified event. `raw` is what was signed; `object` is its `data.object`."""

    id: str
    type: str
    created: int
    livemode: bool
    merchant: str
    object: Mapping[str, Any]
    raw: bytes = field(repr=False)


def is_usable(secret: str) -> bool:
    """Whether a secret can sign at all: an empty one would let anybody sign, one that is no
    text (a command line's stray bytes) has no bytes to sign with."""
    bare = secret.strip()
    return bool(bare) and bare not in ("whsec_", asymmetric.PRIVATE) and _is_text(secret)


def _is_text(value: str) -> bool:
    return not re.search("[\ud800-\udfff]", value)


def is_event_id(text: str) -> bool:
    """Whether an event may have this id: what `verify` takes, and any header carries."""
    return _EVENT_ID.fullmatch(text) is not None


def sign(body: bytes, secrets: Sequence[str], t: int) -> str:
    """The value of `Vpay-Signature`: one v1 per secret, in order. Raises InvalidRequest for
    no secret, an unusable one or more than 8, and for a time that is no Unix second."""
    time_text = _time_text(t)
    signed = time_text.encode() + b"." + body
    digests = [hmac.new(s.encode(), signed, hashlib.sha256).hexdigest() for s in _keys(secrets)]
    return ",".join([f"t={time_text}", *(f"v1={digest}" for digest in digests)])


def headers(
    body: bytes, secrets: Sequence[str], t: int, *, event_id: str, attempt: int
) -> dict[str, str]:
    """Every header of one delivery attempt but those of the connection. With private keys
    alone there is no `Vpay-Signature`: nobody could check one. Raises as `sign`."""
    shared = [secret for secret in secrets if not is_asymmetric(secret)]
    value = sign(body, shared, t) if shared or not secrets else None
    time_text = _time_text(t)
    signed = b".".join((event_id.encode(), time_text.encode(), body))
    return {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": USER_AGENT,
        **({"Vpay-Signature": value, "Stripe-Signature": value} if value is not None else {}),
        "Vpay-Event-Id": event_id,
        "Vpay-Attempt": str(attempt),
        "webhook-id": event_id,
        "webhook-timestamp": time_text,
        "webhook-signature": " ".join(_standard(secret, signed) for secret in secrets),
    }


def _standard(secret: str, signed: bytes) -> str:
    if is_asymmetric(secret):
        return asymmetric.signature(secret, signed)
    digest = hmac.new(standard_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def standard_key(secret: str) -> bytes:
    """The key that a Standard Webhooks library derives from the same secret: the bytes its
    base64 stands for, with or without the prefix `whsec_`, padded or not. A secret that is
    no strict base64 is used as it is (such libraries take it as bytes)."""
    text = secret.removeprefix("whsec_")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return secret.encode()
    return key or secret.encode()


def spellings(secret: str) -> list[str]:
    """How a receiver may say the secret back, the longest first: whole, without `whsec_`,
    without padding, and as JSON writes its slashes."""
    bare = secret.removeprefix("whsec_").removeprefix(asymmetric.PRIVATE)
    plain = {secret, bare, bare.rstrip("=")} - {""}
    every = plain | {text.replace("/", "\\/") for text in plain}
    return sorted(every, key=lambda text: (-len(text), text))


def key_id(secret: str) -> str:
    """A fingerprint to compare secrets by, in logs and with a merchant; of a private key it
    is that of the public one, which is what they hold."""
    if secret.startswith(asymmetric.PRIVATE):
        with suppress(InvalidRequest):  # a broken one is told by vetting.py, with its place
            secret = asymmetric.public_key(secret)
    return hashlib.sha256(b"vpay key id\0" + secret.encode()).hexdigest()[:12]


def verify(
    raw_body: bytes | bytearray | str,
    header: str,
    secrets: str | Iterable[str],
    *,
    tolerance: float = 300,
    now: float | None = None,
) -> Event:
    """The event, if `header` (the value of `Vpay-Signature`) signs `raw_body` – the bytes as
    they arrived, never re-serialised – with one of `secrets` no more than `tolerance` seconds
    before or after `now` (Unix seconds; default: this machine's clock).

    Raises SignatureRefused and nothing else, whatever it is given. A delivery may arrive
    twice: remember `event.id` for longer than twice the tolerance.
    """
    try:
        # memoryview refuses what bytes() would silently make up, a number for one.
        body = raw_body.encode() if isinstance(raw_body, str) else bytes(memoryview(raw_body))
        keys = [s.encode() for s in _keys([secrets] if isinstance(secrets, str) else secrets)]
        t, signatures = _parsed(header)
        _check_time(int(t), tolerance, time.time() if now is None else now)
        signed = t.encode() + b"." + body
        good = 0
        for key in keys:  # all against all, without an early end: the time tells nothing
            expected = hmac.new(key, signed, hashlib.sha256).hexdigest().encode()
            for signature in signatures:
                good |= hmac.compare_digest(expected, signature.encode())
        if not good:
            _refuse("no signature matches")
        return _event(body)
    except SignatureRefused:
        raise
    except InvalidRequest as error:
        raise SignatureRefused(str(error)) from None  # of the secrets given, and quotes none
    except Exception as error:  # noqa: BLE001 - another kind of error would answer 500
        raise SignatureRefused(f"malformed: {type(error).__name__}") from None


def _keys(secrets: Iterable[str]) -> list[str]:
    keys = list(secrets)
    if not 1 <= len(keys) <= SIGNATURES_MAX or not all(
        isinstance(key, str) and is_usable(key) and not is_asymmetric(key) for key in keys
    ):
        raise InvalidRequest(
            f"1 to {SIGNATURES_MAX} secrets, each a text, none blank or one of a pair of keys"
        )
    return keys


def _time_text(t: int) -> str:
    text = str(t)
    if not _TIME.fullmatch(text):
        raise InvalidRequest("t: whole Unix seconds")
    return text


def _parsed(header: str) -> tuple[str, list[str]]:
    if len(header) > HEADER_MAX:
        _refuse("the header is too long")
    times, signatures = [], []
    for item in header.split(","):
        name, equals, value = item.strip(" ").partition("=")
        if not equals:
            _refuse("a part of the header has no '='")
        if name == "t":
            times.append(value)
        elif name == "v1":
            signatures.append(value)
    if len(times) != 1 or not _TIME.fullmatch(times[0]):
        _refuse("not exactly one well-formed t")
    if not 1 <= len(signatures) <= SIGNATURES_MAX:
        _refuse(f"not 1 to {SIGNATURES_MAX} v1")
    if not all(_HEX.fullmatch(signature) for signature in signatures):
        _refuse("a v1 is not 64 lower-case hex digits")
    return times[0], signatures


def _check_time(t: int, tolerance: float, now: float) -> None:
    # Written so that NaN, which compares false with everything, is refused.
    if not (0 < tolerance < math.inf):
        _refuse("the tolerance is not a positive number of seconds")
    if not abs(now - t) <= tolerance:
        _refuse("t is outside the tolerance")


def _event(body: bytes) -> Event:
    parsed = json.loads(
        body.decode("utf-8", "strict"), object_pairs_hook=_object, parse_constant=_no_constant
    )
    match parsed:
        case {
            "id": str(id_),
            "object": "event",
            "type": str(type_),
            "created": int(created),
            "livemode": bool(livemode),
            "merchant": str(merchant),
            "data": {"object": dict(object_)},
        } if is_event_id(id_):
            seen = MappingProxyType(object_)
            return Event(id_, type_, created, livemode, merchant, seen, body)
    raise SignatureRefused("signed, but not an event")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _refuse("signed, but a key stands twice in an object")
    return found


def _no_constant(text: str) -> NoReturn:
    _refuse(f"signed, but {text} is not JSON")


def _refuse(reason: str) -> NoReturn:
    raise SignatureRefused(reason)
