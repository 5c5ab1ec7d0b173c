"""`X-Hub-Signature-256: sha256=<hex>`: HMAC-SHA256 over the body, keyed by the secret's text.

Nothing but the body is signed. Its digest is therefore the event's id: whoever caught one
delivery could send it again under another `X-GitHub-Delivery`. There is no time in it either,
so a repeat is known for as long as rows are kept. The type is a header that is not signed,
and can be no more than a hint where to look in the body.
"""

from __future__ import annotations

from collections.abc import Sequence

from vpay_tasks.inbox.vendors.scheme import Rules, Scheme, text_key
from vpay_tasks.inbox.verify import HEX, Headers, Reason, Refused, hmac_sha256, matching


def check(headers: Headers, body: bytes, keys: Sequence[bytes], rules: Rules) -> int:
    algorithm, _, digest = headers.one(rules.header).partition("=")
    if algorithm != "sha256" or not HEX.fullmatch(digest):
        raise Refused(Reason.MALFORMED)
    return matching(keys, [bytes.fromhex(digest)], lambda key: hmac_sha256(key, body))


SCHEME = Scheme(
    check=check,
    key=text_key,
    id=(),
    type=("header:x-github-event",),
    reference=("repository.full_name",),
    timed=False,
    header="X-Hub-Signature-256",
)
