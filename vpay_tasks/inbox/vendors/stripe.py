"""`Stripe-Signature: t=<unix>,v1=<hex>[,v1=…]`: HMAC-SHA256 over `t + "." + body`, keyed by
the endpoint secret's text, `whsec_` included."""

from __future__ import annotations

from collections.abc import Sequence

from vpay_tasks.inbox.vendors.scheme import Rules, Scheme, text_key
from vpay_tasks.inbox.verify import (
    HEX,
    Headers,
    Reason,
    Refused,
    check_time,
    hmac_sha256,
    matching,
)


def check(headers: Headers, body: bytes, keys: Sequence[bytes], rules: Rules) -> int:
    time, signatures = _parsed(headers.one(rules.header))
    check_time(time, tolerance=rules.tolerance, now=rules.now)
    # The literal text of the time is what is signed.
    signed = time.encode() + b"." + body
    return matching(keys, signatures, lambda key: hmac_sha256(key, signed))


def _parsed(header: str) -> tuple[str, list[bytes]]:
    times, signatures = [], []
    for item in header.split(","):
        name, _, value = item.strip(" ").partition("=")
        if name == "t":
            times.append(value)
        elif name == "v1":
            signatures.append(value)
    if len(times) != 1 or not signatures or not all(map(HEX.fullmatch, signatures)):
        raise Refused(Reason.MALFORMED)
    return times[0], [bytes.fromhex(signature) for signature in signatures]


SCHEME = Scheme(
    check=check,
    key=text_key,
    id=("id",),
    type=("type",),
    # A checkout session, a charge and a refund name their payment intent: they share its lane.
    reference=("data.object.payment_intent", "data.object.id"),
    timed=True,
    header="Stripe-Signature",
)
