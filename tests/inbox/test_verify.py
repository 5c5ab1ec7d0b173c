"""Signatures: what vendors' own packages sign is taken, and nothing else is."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.inbox.bench import tables
from tests.inbox.signing import (
    GITHUB,
    STANDARD,
    STRIPE,
    TABLES,
    Delivery,
    by_github,
    by_hand,
    by_standard,
    by_stripe,
    by_svix,
    by_token,
    stripe_event,
)
from vpay_tasks.inbox.vendors import Vendor, build
from vpay_tasks.inbox.verify import Headers, HeadersLike, Refused

BODY = stripe_event()


def built(**tables_: dict[str, object]) -> dict[str, Vendor]:
    faults: list[str] = []
    found = build(tables(tables_ or TABLES), faults)
    assert faults == []
    return found


def why(
    given: Delivery,
    vendor: str = "stripe",
    *,
    headers: HeadersLike | None = None,
    body: bytes | None = None,
    now: float | None = None,
    account: str = "",
    vendors: dict[str, Vendor] | None = None,
) -> str | None:
    """Why it is refused; None if it is not."""
    try:
        (vendors or built())[vendor].verify(
            Headers(given.headers if headers is None else headers),
            given.body if body is None else body,
            account,
            now=time.time() if now is None else now,
        )
    except Refused as refused:
        return refused.reason.value
    return None


def test_a_refusal_tells_its_sender_nothing() -> None:
    for given in (Delivery(BODY), by_stripe(BODY, at=1), by_stripe(BODY, secret="x" * 20)):
        with pytest.raises(Refused, match=r"^the webhook's signature was refused$"):
            built()["stripe"].verify(Headers(given.headers), BODY, "", now=time.time())


@pytest.mark.parametrize(
    ("vendor", "sign"),
    [
        ("stripe", by_stripe),
        ("stripe", by_hand),
        ("acme", by_standard),
        ("acme", by_svix),
        ("github", by_github),
        ("bank", by_token),
    ],
)
def test_what_a_vendor_signs_is_taken_and_no_other_body(
    vendor: str, sign: Callable[[bytes], Delivery]
) -> None:
    given = sign(BODY)
    assert why(given, vendor) is None
    lower = [(name.lower().encode(), value.encode()) for name, value in given.headers.items()]
    assert why(given, vendor, headers=lower) is None
    assert why(given, vendor, headers={}) == "missing"
    for name in given.headers:
        if name.startswith("X-GitHub"):
            continue  # not part of what is verified
        twice = [*given.headers.items(), (name, given.headers[name])]
        assert why(given, vendor, headers=twice) == "malformed"
        assert why(given, vendor, headers={**given.headers, name: "é" * 64}) == "malformed"
        assert why(given, vendor, headers={**given.headers, name: "x" * 3_000}) == "malformed"
    if vendor != "bank":
        for other in (BODY + b"\n", b" " + BODY, BODY.replace(b"1000", b"9000"), b""):
            assert why(given, vendor, body=other) == "mismatch"


@pytest.mark.parametrize(("vendor", "sign"), [("stripe", by_stripe), ("acme", by_standard)])
def test_a_time_is_believed_within_five_minutes_on_either_side(
    vendor: str, sign: Callable[[bytes], Delivery]
) -> None:
    given, now = sign(BODY), int(time.time())
    for away in (-299, 0, 299):
        assert why(given, vendor, now=now + away) is None
    for away in (-310, 310, 86_400):
        assert why(given, vendor, now=now + away) == "stale"
    assert why(given, vendor, now=float("nan")) == "stale"


@pytest.mark.parametrize(
    "header",
    [
        "",
        ",",
        "t=",
        "v1=",
        "t={t}",
        "v1={v}",
        "t={t},v0={v}",
        "t={t},V1={v}",
        "t={t},v1={V}",
        "t={t},v1={v}0",
        "t={t},v1= {v}",
        "t={t},t={t},v1={v}",
        "t=1,t={t},v1={v}",
        "t={t},v1={v},t=1",
        "t=+{t},v1={v}",
        "t=0{t},v1={v}",
        "t={t}.0,v1={v}",
        "t=1_7,v1={v}",
        "t=-1,v1={v}",
        "t=1e9,v1={v}",
        "t=0,v1={v}",
        "t={t}000000000,v1={v}",
        "t={t};v1={v}",
        "t={t},v1={v}, t={t},v1={v}",
        "t={t}," + ",".join(["v1={v}"] * 9),
    ],
)
def test_a_stripe_header_that_is_not_one_is_refused_as_malformed(header: str) -> None:
    given = by_stripe(BODY)
    t, v = (item.partition("=")[2] for item in given.headers["Stripe-Signature"].split(","))
    text = header.format(t=t, v=v, V=v.upper())
    assert why(given, headers={"Stripe-Signature": text}) == "malformed"


def test_a_stripe_header_may_hold_other_versions_and_several_signatures() -> None:
    given = by_stripe(BODY)
    t, v1 = given.headers["Stripe-Signature"].split(",")
    wrong = "v1=" + "0" * 64
    for header in (f"{t},{wrong},{v1}", f"{t},{v1},{wrong},v0=abc", f"{v1},{t}", f"{t}, {v1}"):
        assert why(given, headers={"Stripe-Signature": header}) is None
    assert why(given, headers={"Stripe-Signature": f"{t},{wrong}"}) == "mismatch"
    later = f"t={int(time.time()) + 1},{v1}"
    assert why(given, headers={"Stripe-Signature": later}) == "mismatch"


def test_eight_signatures_and_two_thousand_and_forty_eight_characters_are_read() -> None:
    given = by_stripe(BODY)
    t, v1 = given.headers["Stripe-Signature"].split(",")
    eight = ",".join([t, *["v1=" + "0" * 64] * 7, v1])
    for header in (eight, f"{eight},v0=".ljust(2_048, "0")):
        assert why(given, headers={"Stripe-Signature": header}) is None
    assert why(given, headers={"Stripe-Signature": f"{eight},v0=".ljust(2_049, "0")}) == "malformed"


def test_a_header_that_stands_twice_names_nothing() -> None:
    headers = Headers([("X-About", "order 1"), ("x-about", "order 2"), (b"X-Id", b"7")])
    assert headers.singles() == {"x-id": "7"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-id", ""),
        ("webhook-id", "a b"),
        ("webhook-id", "x" * 129),
        ("webhook-timestamp", "1764000000.9"),
        ("webhook-timestamp", " 1764000000"),
        ("webhook-timestamp", "1_764_000_000"),
        ("webhook-signature", ""),
        ("webhook-signature", "v1"),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "v1,!!!!"),
        ("webhook-signature", "v1a,AAAA"),
        ("webhook-signature", "v2," + "A" * 43 + "="),
        ("webhook-signature", " ".join(["v1," + "A" * 43 + "="] * 9)),
    ],
)
def test_standard_headers_that_are_not_are_refused_as_malformed(name: str, value: str) -> None:
    given = by_standard(BODY)
    assert why(given, "acme", headers={**given.headers, name: value}) == "malformed"


def test_the_id_of_a_standard_webhook_is_signed() -> None:
    given = by_standard(BODY)
    assert why(given, "acme", headers={**given.headers, "webhook-id": "msg_2"}) == "mismatch"
    both = {**by_svix(BODY).headers, **given.headers}
    assert why(given, "acme", headers=both) is None


@pytest.mark.parametrize(("sign", "beside"), [(by_svix, "webhook-id"), (by_standard, "svix-id")])
def test_an_id_that_is_not_signed_stands_beside_none_that_is(
    sign: Callable[[bytes], Delivery], beside: str
) -> None:
    given = sign(BODY)
    assert why(given, "acme", headers={**given.headers, beside: "msg_1"}) is None
    for other in ("msg_2", "", "x" * 3_000):
        assert why(given, "acme", headers={**given.headers, beside: other}) == "malformed"


@pytest.mark.parametrize(
    "value", ["", "sha256=", "sha1={v}", "sha256={V}", "sha256={v}0", "{v}", "sha256= {v}"]
)
def test_a_github_header_that_is_not_one_is_refused(value: str) -> None:
    given = by_github(BODY)
    v = given.headers["X-Hub-Signature-256"].partition("=")[2]
    headers = {"X-Hub-Signature-256": value.format(v=v, V=v.upper())}
    assert why(given, "github", headers=headers) == "malformed"


def test_a_token_is_a_bearers_unless_the_settings_name_a_header() -> None:
    plain = built(bank={"scheme": "token", "secrets": ["s" * 16]})
    ask = Delivery(BODY)
    for value, reason in [
        ("Bearer " + "s" * 16, None),
        ("bearer " + "s" * 16, None),
        ("s" * 16, "malformed"),
        ("Basic " + "s" * 16, "malformed"),
        ("Bearer " + "s" * 15, "mismatch"),
        ("Bearer  " + "s" * 16, "mismatch"),
        ("Bearer ", "mismatch"),
    ]:
        assert why(ask, "bank", headers={"Authorization": value}, vendors=plain) == reason
    assert why(by_token(BODY, token="another one, long enough"), "bank") == "mismatch"


def test_any_of_several_secrets_verifies_and_is_named_by_its_fingerprint() -> None:
    both = built(stripe={"scheme": "stripe", "secrets": ["new" * 8, STRIPE]})
    new = by_stripe(BODY, secret="new" * 8)
    assert why(by_stripe(BODY), vendors=both) is None
    assert why(new, vendors=both) is None
    assert why(new) == "mismatch"
    at = time.time()
    names = {
        both["stripe"].verify(Headers(given.headers), BODY, "", now=at)
        for given in (by_stripe(BODY), new)
    }
    assert len(names) == 2
    assert all(name.startswith("stripe/") and len(name) == 19 for name in names)
    assert "new" not in repr(both["stripe"])
    assert STRIPE not in repr(both["stripe"])


def test_an_account_with_secrets_of_its_own_takes_no_others() -> None:
    own = built(
        stripe={
            "scheme": "stripe",
            "secrets": [STRIPE],
            "accounts": {"a": {"secrets": ["a" * 20]}, "b": {"secrets": ["b" * 20]}},
        }
    )
    for_a = by_stripe(BODY, secret="a" * 20)
    assert why(for_a, account="a", vendors=own) is None
    assert why(for_a, account="b", vendors=own) == "mismatch"
    assert why(for_a, account="c", vendors=own) == "mismatch"
    assert why(for_a, account="", vendors=own) == "mismatch"
    assert why(by_stripe(BODY), account="c", vendors=own) == "mismatch"
    assert why(by_stripe(BODY), account="", vendors=own) is None
    assert why(by_stripe(BODY), account="anyone") is None  # nobody has any of their own


def test_a_vendor_of_no_accounts_takes_none() -> None:
    none = built(stripe={"scheme": "stripe", "secrets": [STRIPE], "accounts": {}})
    assert why(by_stripe(BODY), vendors=none) is None
    assert why(by_stripe(BODY), account="anyone", vendors=none) == "mismatch"


def test_a_time_is_believed_to_its_edge_and_no_further() -> None:
    given = by_stripe(BODY, at=1_800_000_000)
    for away in (300, -300):
        assert why(given, now=1_800_000_000 + away) is None
        assert why(given, now=1_800_000_000 + away * 1.001) == "stale"


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({"scheme": "stripe", "secrets": ["short"]}, "secrets.0: needs at least 16 characters"),
        ({"scheme": "token", "secrets": [" " * 20]}, "secrets.0: needs at least 16 characters"),
        (
            {"scheme": "standard-webhooks", "secrets": [STANDARD, "no base64 at all!"]},
            "secrets.1: is not base64 (with or without whsec_)",
        ),
        (
            {"scheme": "standard-webhooks", "secrets": ["whsec_AAAA"]},
            "secrets.0: stands for fewer than 24 bytes",
        ),
        (
            {"scheme": "github", "secrets": [GITHUB], "tolerance": 60},
            "tolerance: the scheme 'github' signs no time",
        ),
        (
            {"scheme": "stripe", "secrets": [STRIPE], "header": "X-Sig"},
            "header: the scheme 'stripe' has its own",
        ),
        (
            {"scheme": "stripe", "secrets": [STRIPE], "id": ["header:bad name"]},
            "id.0: write header:x-name or keys: data.object.id",
        ),
        (
            {"scheme": "stripe", "secrets": [STRIPE], "id": ["id", "header:x-id"]},
            "id.1: the scheme 'stripe' doesn't sign this header: with another one a caught"
            " delivery would be a new event",
        ),
        (
            {"scheme": "github", "secrets": [GITHUB], "reference": ["header:X-About"]},
            "reference.0: the scheme 'github' doesn't sign this header: with another one a caught"
            " delivery would be a new event",
        ),
        (
            {"scheme": "stripe", "secrets": [STRIPE], "accounts": {"a": {"secrets": ["x"]}}},
            "accounts.a.secrets.0: needs at least 16 characters",
        ),
    ],
)
def test_a_vendor_that_could_never_verify_is_a_fault(table: dict[str, object], fault: str) -> None:
    faults: list[str] = []
    assert build(tables({"v": table}), faults) == {}
    assert faults == [f"inbox.v.{fault}"]


def test_headers_that_are_signed_or_where_nothing_is_may_name_an_event() -> None:
    named = {"id": ["header:Webhook-Id"], "reference": ["header:svix-id"], "type": ["header:x-t"]}
    assert built(acme={"scheme": "standard-webhooks", "secrets": [STANDARD], **named})
    anything = {"id": ["header:x-id"], "reference": ["header:x-about"]}
    assert built(bank={"scheme": "token", "secrets": ["s" * 16], **anything})
