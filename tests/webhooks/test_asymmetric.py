"""Signatures by a private key, as a receiver with the public one checks them."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from contextlib import suppress  # noqa: F401 - for the manual's code

import pytest
import standardwebhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.house import ROOT
from tests.webhooks.test_vetting import of
from tests.webhooks.world import SECRET, event_body
from vpay_tasks.errors import InvalidRequest
from vpay_tasks.webhooks import SignatureRefused, asymmetric, sign, verify
from vpay_tasks.webhooks.answer import excerpt
from vpay_tasks.webhooks.sign import headers, is_usable, key_id

SEED = bytes(range(32))
SECRET_KEY = "whsk_" + base64.b64encode(SEED).decode()
PUBLIC_KEY = asymmetric.public_key(SECRET_KEY)
WHOLE_KEY = "whsk_" + base64.b64encode(SEED + base64.b64decode(PUBLIC_KEY[5:])).decode()
BODY = event_body("evt_1")


def sent(*secrets: str) -> dict[str, str]:
    return headers(BODY, secrets, int(time.time()), event_id="evt_1", attempt=1)


def check(found: dict[str, str], value: str, body: bytes = BODY) -> None:
    """By the text of the specification, with the library alone."""
    signed = b".".join((b"evt_1", found["webhook-timestamp"].encode(), body))
    version, text = value.split(",")
    assert version == "v1a"
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(PUBLIC_KEY.removeprefix("whpk_")))
    key.verify(base64.b64decode(text), signed)


@pytest.mark.parametrize("secret", [SECRET_KEY, WHOLE_KEY])
def test_a_private_key_signs_what_its_public_one_verifies(secret: str) -> None:
    found = sent(secret)
    check(found, found["webhook-signature"])
    with pytest.raises(InvalidSignature):
        check(found, found["webhook-signature"], BODY + b"\n")


def test_without_a_shared_secret_there_is_no_header_that_nobody_could_check() -> None:
    found = sent(SECRET_KEY)
    assert "Vpay-Signature" not in found
    assert "Stripe-Signature" not in found


def test_beside_a_shared_secret_each_signs_in_its_own_way_and_in_order() -> None:
    found = sent(SECRET, SECRET_KEY)
    first, second = found["webhook-signature"].split(" ")
    assert first.startswith("v1,")
    check(found, second)
    assert verify(BODY, found["Vpay-Signature"], SECRET).id == "evt_1"
    assert standardwebhooks.Webhook(SECRET).verify(BODY, found)["id"] == "evt_1"
    assert found["Vpay-Signature"].count("v1=") == 1


@pytest.mark.parametrize("key", [SECRET_KEY, PUBLIC_KEY])
def test_a_key_of_a_pair_is_never_the_key_of_an_hmac(key: str) -> None:
    with pytest.raises(InvalidRequest):
        sign(BODY, [key], 1_764_000_000)
    with pytest.raises(SignatureRefused):
        verify(BODY, sent(SECRET)["Vpay-Signature"], [SECRET, key])


BROKEN = {
    "no base64": "whsk_###",
    "31 bytes": "whsk_" + base64.b64encode(SEED[1:]).decode(),
    "another's public half": "whsk_" + base64.b64encode(SEED + SEED).decode(),
    "the public one": PUBLIC_KEY,
}


@pytest.mark.parametrize("key", BROKEN.values(), ids=BROKEN.keys())
def test_a_private_key_that_is_none_is_a_fault_of_the_settings_and_is_not_quoted(key: str) -> None:
    (fault,) = of(secrets=[key])
    assert fault.startswith("secrets.0: ")
    assert key not in fault
    with pytest.raises(InvalidRequest):
        sent(key)


def test_a_private_key_alone_or_beside_a_secret_is_no_fault() -> None:
    assert of(secrets=[SECRET_KEY]) == of(secrets=[SECRET, WHOLE_KEY]) == []
    assert not is_usable("whsk_")


def test_both_sides_name_a_pair_by_the_fingerprint_of_its_public_key() -> None:
    assert key_id(SECRET_KEY) == key_id(WHOLE_KEY) == key_id(PUBLIC_KEY)


def test_a_broken_key_has_a_fingerprint_of_its_own_and_takes_no_list_down() -> None:
    assert len({key_id("whsk_zzz"), key_id("whsk_"), key_id(SECRET_KEY)}) == 3


def test_a_private_key_that_is_said_back_is_not_kept() -> None:
    kept = excerpt(f"<{SECRET_KEY.removeprefix('whsk_')}>".encode(), (SECRET_KEY,))
    assert SECRET_KEY[5:20] not in kept


def _documented() -> Callable[..., None]:
    text = (ROOT / "docs" / "webhooks.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = dict(globals())
    exec(code, names)
    found: Callable[..., None] = names["check"]
    return found


def test_the_manuals_check_takes_what_a_private_key_signs_and_nothing_else() -> None:
    found = sent(SECRET, SECRET_KEY)
    given = ("evt_1", found["webhook-timestamp"], found["webhook-signature"])
    documented = _documented()
    documented(PUBLIC_KEY, BODY, *given)
    with pytest.raises(InvalidSignature):
        documented(PUBLIC_KEY, BODY + b"\n", *given)
    with pytest.raises(InvalidSignature):
        documented(PUBLIC_KEY, BODY, "evt_2", *given[1:])
    with pytest.raises(InvalidSignature):
        documented(PUBLIC_KEY, BODY, *given[:2], given[2].split(" ")[0])
    with pytest.raises(ValueError, match="not of now"):
        documented(PUBLIC_KEY, BODY, "evt_1", str(int(given[1]) - 301), given[2])
