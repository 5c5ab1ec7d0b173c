"""A fixed token in a header, `Authorization: Bearer <token>` or one that the settings name:
for vendors that sign nothing. Whoever has seen one request can send any other: prefer a vendor
that signs, keep to TLS, and let the business ask the vendor before it believes."""

from __future__ import annotations

from collections.abc import Sequence

from vpay_tasks.inbox.vendors.scheme import Rules, Scheme, text_key
from vpay_tasks.inbox.verify import Headers, Reason, Refused, hmac_sha256, matching

_BEARER = "Authorization"


def check(headers: Headers, _body: bytes, keys: Sequence[bytes], rules: Rules) -> int:
    said = headers.one(rules.header)
    if rules.header.lower() == _BEARER.lower():
        word, _, said = said.partition(" ")
        if word.lower() != "bearer":
            raise Refused(Reason.MALFORMED)
    # Digests of one length are compared: the time doesn't tell how long the token is.
    given = [hmac_sha256(b"token", said.encode())]
    return matching(keys, given, lambda key: hmac_sha256(b"token", key))


SCHEME = Scheme(
    check=check,
    key=text_key,
    id=("id",),
    type=("type", "event"),
    reference=("reference", "data.reference", "data.id"),
    timed=False,
    header=_BEARER,
    header_is_free=True,
    signed_headers=None,
)
