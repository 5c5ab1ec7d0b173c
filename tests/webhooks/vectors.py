"""Signatures for verifiers in any language: `python -m tests.webhooks.vectors` writes
docs/webhook_vectors.json anew, and a test compares."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from tests.house import ROOT
from tests.webhooks import test_asymmetric as pair
from tests.webhooks.test_sign import ATTACKS, BODY, HEADER, NOW, OLD
from tests.webhooks.world import SECRET
from vpay_tasks.webhooks.sign import headers

FILE = ROOT / "docs" / "webhook_vectors.json"
GOOD: dict[str, dict[str, Any]] = {
    "one secret": {},
    "an old secret beside it": {"secrets": [OLD, SECRET]},
    "a signature of a secret that is not held": {"header": f"{HEADER},v1={'0' * 64}"},
    "unknown parts, spaces between": {"header": f"v0=x, {HEADER}"},
    "300 s old": {"now": NOW + 300},
    "300 s early": {"now": NOW - 300},
}


def rendered() -> str:
    document = {
        "about": "Bodies are base64. `sent` is what a delivery carries; `verify` is what a"
        " verifier of Vpay-Signature is given, with the verdict it must come to, and no other"
        " error. Times are Unix seconds.",
        "sent": [
            _sent("an HMAC for each secret, in order", [SECRET, OLD]),
            _sent("Ed25519 alone", [pair.SECRET_KEY]),
            _sent("Ed25519 beside HMAC", [SECRET, pair.SECRET_KEY]),
        ],
        "verify": [
            *(_case(name, change, "accepted") for name, change in GOOD.items()),
            *(
                _case(name, change, "refused")
                for name, change in ATTACKS.items()
                if _is_for_any_language(change)
            ),
        ],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _sent(name: str, secrets: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "secrets": secrets,
        "public_keys": [pair.PUBLIC_KEY] if pair.SECRET_KEY in secrets else [],
        "body": _base64(BODY),
        "headers": headers(BODY, secrets, NOW, event_id="evt_1", attempt=1),
    }


def _case(name: str, change: dict[str, Any], verdict: str) -> dict[str, Any]:
    call: dict[str, Any] = {
        "raw_body": BODY,
        "header": HEADER,
        "secrets": SECRET,
        "now": NOW,
        "tolerance": 300,
    }
    call |= change
    secrets = call["secrets"]
    return {
        "name": name,
        "body": _base64(call["raw_body"]),
        "header": call["header"],
        "secrets": [secrets] if isinstance(secrets, str) else secrets,
        "now": call["now"],
        "tolerance": call["tolerance"],
        "verdict": verdict,
    }


def _is_for_any_language(change: dict[str, Any]) -> bool:
    """Values that JSON holds in a few bytes, of the types that a verifier is made for."""
    secrets = change.get("secrets", SECRET)
    numbers = [change.get("now", NOW), change.get("tolerance", 300)]
    return (
        isinstance(change.get("raw_body", b""), bytes)
        and isinstance(header := change.get("header", ""), str)
        and len(header) < 2_048
        and (isinstance(secrets, str) or all(isinstance(s, str) for s in secrets or [None]))
        and all(isinstance(n, int | float) and abs(n) < 2**53 for n in numbers)
        and all(math.isfinite(n) for n in numbers)
    )


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


if __name__ == "__main__":
    FILE.write_text(rendered(), "utf-8")
