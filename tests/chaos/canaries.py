"""Every secret of a soak is a text that stands nowhere else: whoever greps for it and finds it
has found a leak.

    run = Path(…)            the folder that a soak names when it ends
    artefacts(run)           what our own processes left: logs, command lines, the database's texts
    CANARIES                 name → the text as it would be found
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from vpay_sandbox import scenarios

DATABASE_PASSWORD: Final = "canary-database-password-5b1f09"
BROKER_PASSWORD: Final = "canary-broker-password-77c2ae"
BROKER_USER: Final = "soak"
MOMO_API_KEY: Final = "canary-momo-api-key-31d8c4"
MOMO_SUBSCRIPTION: Final = "canary-momo-subscription-e90a17"
ORANGE_SECRET: Final = "canary-orange-secret-4c6b52"
ORANGE_MERCHANT: Final = "canary-orange-merchant-a8f3d1"
STRIPE_SECRET: Final = "whsec_canary-vendor-secret-60e7b9"
PAYER_KEY: Final = base64.urlsafe_b64encode(b"canary-key-of-payers-numbers-42!").decode()


def webhook_secret(merchant: str, endpoint: str) -> str:
    return "whsec_" + base64.b64encode(f"canary of {merchant}/{endpoint}, 2d97".encode()).decode()


def api_key(merchant: str) -> str:
    return f"canary-api-key-of-{merchant}-1f60c3b8"


MERCHANTS: Final = ("bakery", "bookshop")
ENDPOINTS: Final = tuple(
    (merchant, endpoint) for merchant in MERCHANTS for endpoint in ("steady", "shaky")
)

CANARIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "the database's password": DATABASE_PASSWORD,
        "the broker's password": BROKER_PASSWORD,
        "the push rail's key": MOMO_API_KEY,
        "the push rail's subscription": MOMO_SUBSCRIPTION,
        "the redirect rail's secret": ORANGE_SECRET,
        "the redirect rail's merchant key": ORANGE_MERCHANT,
        "the vendor's secret": STRIPE_SECRET,
        "the key of payers' numbers": PAYER_KEY,
        **{f"the secret of {m}/{e}": webhook_secret(m, e) for m, e in ENDPOINTS},
        **{f"the API key of {m}": api_key(m) for m in MERCHANTS},
        **{f"the payer of {one.name}": one.payer for one in scenarios.load().push if one.payer},
    }
)


def artefacts(run: Path) -> Path:
    """The folder below a soak's in which no canary may be. Beside it lie the settings and the
    stubs' journals, which must hold them."""
    return run / "artefacts"
