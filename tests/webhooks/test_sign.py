"""Our signatures as others verify them, and attacks as we refuse them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

import pytest
import standardwebhooks
import stripe
from hypothesis import given
from hypothesis import strategies as st

from tests.webhooks.world import SECRET, event_body
from vpay_tasks import webhooks
from vpay_tasks.errors import Authentication, InvalidRequest
from vpay_tasks.webhooks import SignatureRefused, sign, verify
from vpay_tasks.webhooks.sign import headers, key_id, standard_key

OLD = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NOW = 1_764_000_000
BODY = event_body("evt_1")


def v1(signed: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


GOOD = v1(f"{NOW}.".encode() + BODY)
HEADER = f"t={NOW},v1={GOOD}"


def test_our_header_is_t_and_one_v1_per_secret_in_order() -> None:
    old = v1(f"{NOW}.".encode() + BODY, OLD)
    assert sign(BODY, [SECRET, OLD], NOW) == f"{HEADER},v1={old}"


def test_stripes_library_verifies_what_we_send_with_either_secret() -> None:
    sent = headers(BODY, [SECRET, OLD], int(time.time()), event_id="evt_1", attempt=1)
    for secret in (SECRET, OLD):
        event = stripe.Webhook.construct_event(BODY, sent["Stripe-Signature"], secret)
        assert event.id == "evt_1"
    assert sent["Vpay-Signature"] == sent["Stripe-Signature"]


@pytest.mark.parametrize("secret", [SECRET, OLD, SECRET.removeprefix("whsec_"), "whsec_MTIzNA"])
def test_the_standard_webhooks_library_verifies_what_we_send(secret: str) -> None:
    sent = headers(BODY, ["another", secret], int(time.time()), event_id="evt_1", attempt=1)
    assert standardwebhooks.Webhook(secret).verify(BODY, sent)["id"] == "evt_1"


def test_a_secret_that_is_no_base64_signs_standard_webhooks_as_its_own_bytes() -> None:
    secret = "whsec_not-base64!"
    sent = headers(BODY, [secret], int(time.time()), event_id="evt_1", attempt=1)
    assert standardwebhooks.Webhook(secret.encode()).verify(BODY, sent)["id"] == "evt_1"


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=40))
def test_any_bytes_are_signed_as_they_are(body: bytes, key: bytes) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    assert standard_key(secret) == key
    t, signature = sign(body, [secret], NOW).split(",")
    assert signature == "v1=" + v1(t[2:].encode() + b"." + body, secret)


def test_what_we_sign_we_verify_and_read() -> None:
    event = verify(BODY, sign(BODY, [SECRET], int(time.time())), SECRET)
    assert (event.id, event.type, event.merchant) == ("evt_1", "payment_intent.succeeded", "acme")
    assert (event.created, event.livemode) == (1_764_000_000, False)
    assert event.object["note"] == "é z a"
    assert event.raw == BODY
    assert webhooks.verify is verify


@pytest.mark.parametrize(
    "header",
    [
        f"v0=x,t={NOW},v1={GOOD}",
        f"t={NOW},v0=x,v1={GOOD}",
        f"v1={GOOD},t={NOW}",
        f"t={NOW}, v1={GOOD}",
        f"t={NOW},v1={'0' * 64},v1={GOOD}",
        f"t={NOW},v1a=AAAA,v1={GOOD}",
    ],
)
def test_order_spaces_between_parts_and_unknown_parts_are_no_fault(header: str) -> None:
    assert verify(BODY, header, [OLD, SECRET], now=NOW).id == "evt_1"


@pytest.mark.parametrize("at", range(8))
def test_any_of_eight_secrets_may_have_made_any_of_eight_signatures(at: int) -> None:
    """One more of either is refused (see ATTACKS); a rotation has two of both at least."""
    others = [f"v1={number:064x}" for number in range(7)]
    header = ",".join([f"t={NOW}", *others[:at], f"v1={GOOD}", *others[at:]])
    for place in range(8):
        keys = [f"{OLD}{number}" for number in range(7)]
        keys.insert(place, SECRET)
        assert verify(BODY, header, keys, now=NOW).id == "evt_1"


def test_a_header_is_read_up_to_its_size_and_no_further() -> None:
    longest = f"{HEADER},x=".ljust(2_048, "y")
    assert verify(BODY, longest, SECRET, now=NOW).id == "evt_1"
    with pytest.raises(SignatureRefused):
        verify(BODY, f"{longest}y", SECRET, now=NOW)


def test_a_tolerance_below_a_second_is_one() -> None:
    assert verify(BODY, HEADER, SECRET, now=NOW + 0.25, tolerance=0.5).id == "evt_1"
    with pytest.raises(SignatureRefused):
        verify(BODY, HEADER, SECRET, now=NOW + 0.75, tolerance=0.5)


def test_a_str_body_verifies_like_its_bytes() -> None:
    assert verify(BODY.decode(), HEADER, SECRET, now=NOW).id == "evt_1"
    assert verify(bytearray(BODY), HEADER, SECRET, now=NOW).id == "evt_1"


@pytest.mark.parametrize("skew", [-300, 300])
def test_the_tolerance_itself_is_still_inside(skew: int) -> None:
    assert verify(BODY, HEADER, SECRET, now=NOW + skew).id == "evt_1"


def resigned(t: str, body: bytes = BODY) -> str:
    """A header whose HMAC is right for the literal `t`."""
    return f"t={t},v1={v1(t.encode() + b'.' + body)}"


ATTACKS: dict[str, dict[str, Any]] = {
    "two t, old and new": {"header": f"t={NOW},t={NOW - 1},v1={GOOD}"},
    "the same t twice": {"header": f"t={NOW},{HEADER}"},
    "two headers folded into one": {"header": f"{HEADER}, {HEADER}"},
    "no v1": {"header": f"t={NOW}"},
    "no t": {"header": f"v1={GOOD}"},
    "only v0": {"header": f"t={NOW},v0={GOOD}"},
    "v0 right, v1 wrong": {"header": f"t={NOW},v0={GOOD},v1={'0' * 64}"},
    "V1": {"header": f"t={NOW},V1={GOOD}"},
    "v1a": {"header": f"t={NOW},v1a={GOOD}"},
    "v10": {"header": f"t={NOW},v10={GOOD}"},
    "T": {"header": f"T={NOW},v1={GOOD}"},
    "upper-case hex": {"header": f"t={NOW},v1={GOOD.upper()}"},
    "63 digits": {"header": f"t={NOW},v1={GOOD[:-1]}"},
    "65 digits": {"header": f"t={NOW},v1={GOOD}0"},
    "two digits": {"header": f"t={NOW},v1={GOOD[:2]}"},
    "hex with a space": {"header": f"t={NOW},v1={GOOD[:32]} {GOOD[32:]}"},
    "base64": {"header": f"t={NOW},v1={base64.b64encode(bytes.fromhex(GOOD)).decode()}"},
    "an equals sign in v1": {"header": f"t={NOW},v1={GOOD},v1=x={GOOD}"},
    "a letter before v1": {"header": f"t={NOW},Xv1={GOOD}"},
    "a tab before v1": {"header": f"t={NOW},\tv1={GOOD}"},
    "empty v1": {"header": f"t={NOW},v1="},
    "non-ASCII v1": {"header": f"t={NOW},v1=é"},
    "64 non-ASCII digits": {"header": f"t={NOW},v1={'١' * 64}"},
    "of the empty body": {"header": f"t={NOW},v1={v1(f'{NOW}.'.encode())}"},
    "of t alone": {"header": f"t={NOW},v1={v1(str(NOW).encode())}"},
    "of the body alone": {"header": f"t={NOW},v1={v1(BODY)}"},
    "t with a plus": {"header": resigned(f"+{NOW}")},
    "t with a space": {"header": resigned(f" {NOW}")},
    "t with an underscore": {"header": resigned("1_764_000_000")},
    "t with an exponent": {"header": resigned("1e9")},
    "t with a fraction": {"header": resigned(f"{NOW}.0")},
    "t in hex": {"header": resigned(hex(NOW))},
    "t with leading zeros": {"header": resigned(f"000{NOW}")},
    "t in Arabic-Indic digits": {"header": resigned("١٧٦٤٠٠٠٠٠٠")},
    "t in full-width digits": {"header": resigned("１７６４００００００")},
    "negative t": {"header": resigned("-1")},
    "t zero": {"header": resigned("0")},
    "t in milliseconds": {"header": resigned(f"{NOW}000")},
    "t of 31 digits": {"header": resigned("1" + "0" * 30)},
    "t of 400 nines": {"header": resigned("9" * 400)},
    "t of 5,000 digits": {"header": resigned("9" * 5_000)},
    "t NaN": {"header": resigned("NaN")},
    "empty t": {"header": resigned("")},
    "301 s old": {"now": NOW + 301},
    "301 s early": {"now": NOW - 301},
    "a year ahead": {"header": resigned(str(NOW + 31_536_000))},
    "a fresh t on an old v1": {"header": f"t={NOW + 600},v1={GOOD}", "now": NOW + 600},
    "t shifted into the body": {"header": f"t={NOW}.x,v1={GOOD}"},
    "NUL in t": {"header": f"t={NOW}\0,v1={GOOD}"},
    "NUL between": {"header": f"t={NOW}\0v1={GOOD}"},
    "semicolon between": {"header": f"t={NOW};v1={GOOD}"},
    "newline behind": {"header": f"{HEADER}\n"},
    "empty": {"header": ""},
    "a comma": {"header": ","},
    "t= and v1=": {"header": "t=,v1="},
    "parts without =": {"header": "t,v1"},
    "a trailing comma": {"header": f"{HEADER},"},
    "10,000 v1": {"header": f"{HEADER}" + f",v1={GOOD}" * 10_000},
    "nine v1": {"header": f"{HEADER}" + f",v1={GOOD}" * 8},
    "1 MB": {"header": HEADER + ",x=" + "y" * 1_000_000},
    "no header": {"header": None},
    "header in bytes": {"header": HEADER.encode()},
    "one byte changed": {"raw_body": BODY.replace(b"pi_1", b"pi_2")},
    "a newline added": {"raw_body": BODY + b"\n"},
    "a BOM added": {"raw_body": b"\xef\xbb\xbf" + BODY},
    "another JSON of the same": {"raw_body": BODY.replace(b":", b": ")},
    "empty body": {"raw_body": b""},
    "body None": {"raw_body": None},
    "body a number": {"raw_body": 5},
    "body with a lone surrogate": {"raw_body": "\ud800"},
    "other secret": {"secrets": OLD},
    "secret removed": {"secrets": []},
    "empty secret": {"secrets": "", "header": f"t={NOW},v1={v1(f'{NOW}.'.encode() + BODY, '')}"},
    "blank secret": {"secrets": "   "},
    "prefix only": {"secrets": "whsec_"},
    "secret None": {"secrets": None},
    "a None among secrets": {"secrets": [SECRET, None]},
    "bytes as a secret": {"secrets": [SECRET.encode()]},
    "nine secrets": {"secrets": [SECRET] * 9},
    "tolerance 0": {"tolerance": 0},
    "tolerance negative": {"tolerance": -1},
    "tolerance NaN": {"tolerance": float("nan")},
    "tolerance infinite": {"tolerance": float("inf")},
    "tolerance None": {"tolerance": None},
    "now NaN": {"now": float("nan")},
    "now beyond floats": {"now": 10**400},
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_an_attack_is_refused_with_the_one_error(attack: dict[str, Any]) -> None:
    call: dict[str, Any] = {"raw_body": BODY, "header": HEADER, "secrets": SECRET, "now": NOW}
    with pytest.raises(SignatureRefused) as refused:
        verify(**(call | attack))
    assert str(refused.value) == "the webhook's signature was refused"
    assert refused.value.reason
    assert isinstance(refused.value, Authentication)


SIGNED_NONSENSE = {
    "no UTF-8": b"\xff\xfe",
    "no JSON": b"hello",
    "a BOM": b"\xef\xbb\xbf" + BODY,
    "no object": b"[]",
    "no event": b'{"id":"evt_1"}',
    "id twice": BODY.replace(b'"object":"event"', b'"object":"event","id":"evt_2"'),
    "NaN": BODY.replace(b"1764000000", b"NaN"),
    "NaN inside": BODY.replace(b'"pi_1"', b"NaN"),
    "infinity inside": BODY.replace(b'"pi_1"', b"-Infinity"),
    "created as text": BODY.replace(b"1764000000", b'"x"'),
    "an id with a dot": BODY.replace(b"evt_1", b"evt.1"),
    "an id with a newline": BODY.replace(b"evt_1", b"evt_1\\n"),
    "a long id": BODY.replace(b"evt_1", b"e" * 512),
    "a 5,000-digit number": BODY.replace(b"1764000000", b"9" * 5_000),
    "200,000 brackets": b"[" * 200_000,
}


@pytest.mark.parametrize("body", SIGNED_NONSENSE.values(), ids=SIGNED_NONSENSE.keys())
def test_a_right_signature_on_what_is_no_event_is_the_same_error(body: bytes) -> None:
    with pytest.raises(SignatureRefused) as refused:
        verify(body, resigned(str(NOW), body), SECRET, now=NOW)
    assert refused.value.reason


@given(body=st.binary(max_size=200), header=st.text(max_size=200))
def test_random_bytes_and_headers_only_ever_raise_the_one_error(body: bytes, header: str) -> None:
    with pytest.raises(SignatureRefused):
        verify(body, header, SECRET, now=NOW)


PARTS = st.sampled_from(
    [f"t={NOW}", f"v1={GOOD}", f"v1={'0' * 64}", "t=", "v1=", "v0=x", "v1a=AAAA", "=", "", "t"]
)
"""Of which good headers are made, too."""


@given(
    parts=st.lists(PARTS | st.text(max_size=8), max_size=10),
    separator=st.sampled_from([",", ", ", ";", "\n", ",,", "\0"]),
    body=st.sampled_from([BODY, BODY + b"\n", b""]) | st.binary(max_size=40),
    now=st.floats() | st.integers() | st.just(NOW),
    tolerance=st.floats() | st.integers() | st.just(300),
)
def test_headers_made_of_good_parts_are_accepted_or_refused_with_the_one_error(
    parts: list[str], separator: str, body: bytes, now: Any, tolerance: Any
) -> None:
    header = separator.join(parts)
    try:
        accepted = verify(body, header, SECRET, now=now, tolerance=tolerance)
    except SignatureRefused:
        return
    assert (accepted.raw, body) == (BODY, BODY)
    assert header.count(f"t={NOW}") == 1
    assert f"v1={GOOD}" in header
    assert 0 < tolerance < float("inf")
    assert abs(now - NOW) <= tolerance


@pytest.mark.parametrize(
    "secrets", [[], [""], ["  "], ["whsec_"], [SECRET, ""], [SECRET] * 9, ["\udcff"]]
)
def test_nothing_is_ever_signed_without_a_proper_secret(secrets: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        sign(BODY, secrets, NOW)


@pytest.mark.parametrize("t", [0, -1, 10**12, 1.5])
def test_a_time_that_is_no_unix_second_is_not_signed(t: Any) -> None:
    with pytest.raises(InvalidRequest):
        sign(BODY, [SECRET], t)


def test_a_refusal_and_an_event_show_neither_secret_nor_body() -> None:
    with pytest.raises(SignatureRefused) as refused:
        verify(BODY, HEADER, OLD, now=NOW)
    shown = repr(refused.value) + refused.value.reason + key_id(SECRET)
    assert SECRET not in shown
    assert OLD not in shown
    assert "payment_intent" not in refused.value.reason


@pytest.mark.parametrize("secrets", [[], "", [SECRET] * 9, [None], "whsec_"])
def test_a_receiver_whose_own_secrets_are_wrong_is_told_so_in_the_reason(secrets: Any) -> None:
    with pytest.raises(SignatureRefused) as refused:
        verify(BODY, HEADER, secrets, now=NOW)
    assert refused.value.reason.startswith("1 to 8 secrets, ")


@pytest.mark.parametrize("at", range(64))
def test_every_digit_of_a_signature_counts(at: int) -> None:
    other = "0" if GOOD[at] != "0" else "1"
    forged = GOOD[:at] + other + GOOD[at + 1 :]
    with pytest.raises(SignatureRefused):
        verify(BODY, f"t={NOW},v1={forged}", SECRET, now=NOW)
