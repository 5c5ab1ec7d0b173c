"""What comes over a network: broker messages, signatures, vendors' bodies, rails' callbacks,
receivers' answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from contextlib import suppress
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tests.fuzz.edits import bodies, texts, values
from tests.inbox import signing
from tests.inbox.bench import tables
from vpay_tasks.config import WindowsTable
from vpay_tasks.core import strict_json
from vpay_tasks.core.strict_json import DEPTH_MAX, Unparseable
from vpay_tasks.errors import InvalidRequest
from vpay_tasks.inbox import vendors
from vpay_tasks.inbox.verify import Headers
from vpay_tasks.inbox.verify import Refused as SignatureOfVendorRefused
from vpay_tasks.rails import build
from vpay_tasks.rails.port import ByKey, ByReference
from vpay_tasks.runtime import envelope
from vpay_tasks.webhooks import answer
from vpay_tasks.webhooks.sign import SignatureRefused, is_event_id, verify
from vpay_tasks.webhooks.sign import sign as signed_header

TOKEN = UUID("0b7c3a52-9a55-4d0a-8f8e-0a6d0d8f3d11")
MESSAGE = envelope.encode(envelope.Envelope("default", (1, 2, 3), TOKEN))
MESSAGES = (
    MESSAGE,
    json.dumps({"v": 1, "q": "default", "ids": [1], "t": TOKEN.hex}).encode(),
    MESSAGE.decode().encode("utf-16"),
    MESSAGE.replace(b'"v":1', b'"v":1,"v":1'),
    b'{"queue_name":"default","actor_name":"x","args":[],"kwargs":{},"options":{}}',
)


def messages() -> st.SearchStrategy[bytes]:
    shaped = st.fixed_dictionaries({"v": values(), "q": values(), "ids": values(), "t": values()})
    return st.one_of(bodies(MESSAGES), shaped.map(lambda body: json.dumps(body).encode()))


def a_message(raw: bytes) -> None:
    """What is taken is byte for byte what we write, for its queue and no other."""
    try:
        found = envelope.decode(raw, "default")
    except envelope.Refused as refused:
        quotes_nothing(str(refused), raw)
        return
    assert envelope.encode(found) == raw
    assert (found.queue, len(raw) <= envelope.SIZE_MAX) == ("default", True)
    assert set(found.claims.values()) == {found.token}


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVENT = json.dumps(
    {
        "id": "evt_1",
        "object": "event",
        "type": "payment_intent.succeeded",
        "created": 1_700_000_000,
        "livemode": False,
        "merchant": "acme",
        "data": {"object": {"id": "pi_1"}},
    }
).encode()
NOW = 1_700_000_000
HEADER = signed_header(EVENT, [SECRET, "older"], NOW)


def signed_bodies() -> st.SearchStrategy[tuple[str, bytes, bool]]:
    """A header, a body, and whether the body is signed anew: behind the signature there is a
    parser, too."""
    headers = texts((HEADER, HEADER.replace(",", ", "), "t=1,v1=" + "0" * 64))
    return st.tuples(headers, bodies((EVENT,)), st.booleans())


def a_signature(given: tuple[str, bytes, bool]) -> None:
    """What verifies was signed with the secret, by somebody else's arithmetic."""
    header, body, anew = given
    if anew:
        header = signed_header(body, [SECRET], NOW)
    try:
        event = verify(body, header, SECRET, now=NOW)
    except SignatureRefused as refused:
        quotes_nothing(refused.reason, SECRET.encode())
        return
    (t,) = re.findall(r"(?:^|,) *t=(\d+)", header)
    right = hmac.new(SECRET.encode(), t.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert f"v1={right}" in header
    assert abs(int(t) - NOW) <= 300
    assert event.raw == body
    assert is_event_id(event.id)


_faults: list[str] = []
VENDORS = vendors.build(tables(), _faults)
SAMPLES = {
    "stripe": signing.by_stripe(signing.stripe_event(), at=NOW),
    "acme": signing.by_standard(b'{"type": "paid", "data": {}}'),
    "github": signing.by_github(b'{"action": "opened"}'),
    "bank": signing.by_token(b'{"id": "b_1", "type": "paid"}'),
}


@st.composite
def vendors_deliveries(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], bytes, bool]:
    name = draw(st.sampled_from(sorted(SAMPLES)))
    sample = SAMPLES[name]
    pairs = [
        (key, draw(st.one_of(st.just(value), texts((value,)))))
        for key, value in sample.headers.items()
    ]
    pairs += draw(st.lists(st.sampled_from(pairs), max_size=1))
    return name, pairs, draw(bodies((sample.body,))), draw(st.booleans())


def a_vendors_delivery(given: tuple[str, list[tuple[str, str]], bytes, bool]) -> None:
    """Only Refused; what is taken carries a right signature of exactly these bytes."""
    name, pairs, body, anew = given
    vendor = VENDORS[name]
    if anew:
        pairs = [*_signed_anew(name, body).items()]
    headers = Headers(pairs)
    now = float(NOW) if name == "stripe" else time.time()
    try:
        told = vendor.verify(headers, body, "", now=now)
    except SignatureOfVendorRefused as refused:
        quotes_nothing(str(refused), body)
        assert not anew, "what is rightly signed is taken"
        return
    assert told.startswith(f"{vendor.scheme_name}/")
    assert _rightly_signed(name, {key.lower(): value for key, value in pairs}, body)
    said = vendor.describe(headers, body)
    for text in (said.event_id, said.type, said.reference or ""):
        text.encode()  # no half of a pair, and nothing that a row could not hold
        assert "\x00" not in text
        assert len(text) <= 255


def _signed_anew(name: str, body: bytes) -> dict[str, str]:
    if name == "stripe":
        return signing.by_hand(body, at=NOW).headers
    if name == "github":
        return signing.by_github(body).headers
    if name == "bank":
        return signing.by_token(body).headers
    at = str(int(time.time()))
    key = base64.b64decode(signing.STANDARD.removeprefix("whsec_"))
    right = hmac.new(key, b".".join((b"msg_1", at.encode(), body)), hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(right).decode()}"
    return {"webhook-id": "msg_1", "webhook-timestamp": at, "webhook-signature": signature}


def _rightly_signed(name: str, headers: dict[str, str], body: bytes) -> bool:
    match name:
        case "bank":
            return headers["x-token"].removeprefix("Bearer ") == signing.TOKEN
        case "github":
            right = hmac.new(signing.GITHUB.encode(), body, hashlib.sha256).hexdigest()
            return headers["x-hub-signature-256"] == f"sha256={right}"
        case "stripe":
            t = re.findall(r"t=(\d+)", headers["stripe-signature"])[0]
            signed = t.encode() + b"." + body
            right = hmac.new(signing.STRIPE.encode(), signed, hashlib.sha256).hexdigest()
            return right in headers["stripe-signature"]
        case _:
            key = base64.b64decode(signing.STANDARD.removeprefix("whsec_"))
            signed = ".".join((headers["webhook-id"], headers["webhook-timestamp"])).encode()
            digest = hmac.new(key, signed + b"." + body, hashlib.sha256).digest()
            return base64.b64encode(digest).decode() in headers["webhook-signature"]


JSON = (
    b'{"id": "evt_1", "amount": 1000, "nested": [{"a": 1.50, "b": null}, "x"]}',
    b'{"a": 1, "a": 2}',
    b'"\\ud83d\\ude00 \\ud800"',
    b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
    b"{}",
)


def jsons() -> st.SearchStrategy[bytes]:
    said = values().map(lambda value: json.dumps(value).encode())
    return st.one_of(bodies(JSON), said)


def a_body(raw: bytes) -> None:
    """Read by both readers, it is what a plain reader reads, storable and not too deep."""
    plain: Any = None
    with suppress(ValueError, RecursionError):
        plain = json.loads(raw, parse_float=str, parse_int=str)
    lax = strict_json.read(raw)
    if lax is not None:
        assert _plain(lax) == _plain(json.loads(raw))
    try:
        value = strict_json.read_event(raw)
    except Unparseable as refused:
        quotes_nothing(str(refused), raw)
        return
    assert _depth(value) <= DEPTH_MAX
    again = json.dumps(_plain(value), ensure_ascii=False).encode()
    assert b"\x00" not in again
    assert _plain(json.loads(raw.decode())) == _plain(value)
    assert plain is not None or raw.strip() == b"null"


def _plain(value: Any) -> Any:
    """With numbers as texts of floats, since one reader makes Decimals of them."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case str() | bool() | None:
            return value
        case _:
            return str(float(value))


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0


ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 503 Busy\r\nRetry-After: 5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n",
    b"HTTP/1.1 103 Early\n\n" * 7,
)


def answers() -> st.SearchStrategy[tuple[bytes, list[int]]]:
    return st.tuples(bodies(ANSWERS), st.lists(st.integers(0, 120), max_size=5))


def an_answer(given: tuple[bytes, list[int]]) -> None:
    """However the bytes are cut, the same is read; the excerpt is short and can be shown."""
    raw, cuts = given
    raw = raw[: answer.READ_MAX]
    whole, pieces = answer.Incoming(), answer.Incoming()
    whole.feed(raw)
    at = 0
    for cut in [*sorted(cuts), len(raw)]:
        pieces.feed(raw[at:cut])
        at = max(at, cut)
    for one in (whole, pieces):
        assert one.status is None or 200 <= one.status <= 999
        assert one.complete in {True, False}
        assert len(one.body) <= len(raw)
    if whole.fault is None:
        assert (whole.status, whole.body) == (pieces.status, pieces.body)
        assert whole.header("retry-after") == pieces.header("retry-after")
    shown = answer.excerpt(raw + SECRET.encode() + raw, (SECRET,))
    assert len(shown) <= answer.EXCERPT_MAX
    assert shown.isprintable()
    assert SECRET.removeprefix("whsec_") not in shown


CALLBACKS = (
    b'{"referenceId": "0b7c3a52-9a55-4d0a-8f8e-0a6d0d8f3d11", "status": "SUCCESSFUL"}',
    b'{"externalId": 7, "financialTransactionId": "1"}',
    b'{"status": "SUCCESS", "notif_token": "abcdef0123456789abcdef", "txnid": "MP1"}',
    b'{"order_id": "ord_1", "order_id": "ord_2"}',
)


def callbacks() -> st.SearchStrategy[bytes]:
    return bodies(CALLBACKS)


_RAIL = {"base_url": "https://rail.example.com", "currencies": ["XAF"]}
_RAILS = build(
    {
        "mtn_momo": {
            "base_url": _RAIL["base_url"],
            "api_user": "u",
            "api_key": "k",
            "subscription_key": "s",
        },
        "orange_money": {
            **_RAIL,
            "client_id": "c",
            "client_secret": "s",
            "merchant_key": "m",
            "notif_url": "https://pay.example.com/provider/orange_money/callback",
        },
    },
    WindowsTable(),
    _faults,
)
assert (len(_RAILS), len(VENDORS), _faults) == (2, 4, [])


def a_callback(raw: bytes) -> None:
    """Of both rails: a name that a row can hold, or a refusal that quotes nothing."""
    for rail in _RAILS.values():
        try:
            named = rail.parse_callback(raw)
        except InvalidRequest as refused:
            quotes_nothing(str(refused), raw)
            continue
        match named:
            case ByReference(text) | ByKey(text):
                assert 1 <= len(text) <= 128
                assert text.isprintable()
                text.encode()


def quotes_nothing(told: str, raw: bytes) -> None:
    """The text of a refusal says back no piece of what it refuses."""
    words = re.split(r"[^A-Za-z0-9_]+", raw.decode("utf-8", "replace"))
    assert [word for word in words if len(word) >= 12 and word in told] == []
