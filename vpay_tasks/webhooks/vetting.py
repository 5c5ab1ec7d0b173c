"""What of the endpoints' settings can never work, told when they are read.

Not config.py's to say: it doesn't know which events there are, nor which URLs are called.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from vpay_tasks.config import EndpointTable, Settings
from vpay_tasks.core.events import EventType
from vpay_tasks.errors import InvalidRequest
from vpay_tasks.webhooks import egress
from vpay_tasks.webhooks.asymmetric import is_asymmetric, private_key
from vpay_tasks.webhooks.sign import SIGNATURES_MAX, is_usable

_TYPES: Final = tuple(kind.value for kind in EventType)
_FAMILIES: Final = tuple(sorted({f"{kind.rpartition('.')[0]}.*" for kind in _TYPES}))
SECRET_MIN: Final = 32
"""Bytes of a secret in livemode, without its prefix: the 24 random ones of a usual `whsec_`
in their base64. Shorter ones can be guessed offline, from one delivery."""


def faults(settings: Settings, rules: egress.Rules | None = None) -> list[str]:
    """A line for each setting of an endpoint that no delivery could be made with, by `rules`
    (default: what the settings themselves allow). Never quotes a URL or a secret. An endpoint
    without a secret is none: its deliveries wait."""
    rules = egress.rules(settings) if rules is None else rules
    shared = _shared(settings) if rules.livemode else frozenset()
    return [
        f"merchants.{merchant.id}.endpoints.{endpoint.id}.{fault}"
        for merchant in settings.merchants
        for endpoint in merchant.endpoints
        for fault in (
            *_url(endpoint, rules),
            *_secrets(endpoint, SECRET_MIN if rules.livemode else 0),
            *_not_ones_own(endpoint, shared),
            *_types(endpoint),
        )
    ]


def _url(endpoint: EndpointTable, rules: egress.Rules) -> Iterator[str]:
    try:
        egress.parse(endpoint.url, rules)
    except egress.EgressRefused as refused:
        yield f"url: {refused} ({refused.why})"


def _secrets(endpoint: EndpointTable, shortest: int) -> Iterator[str]:
    if len(endpoint.secrets) > SIGNATURES_MAX:
        yield f"secrets: at most {SIGNATURES_MAX}, take out the oldest"
    for number, entry in enumerate(endpoint.secrets):
        secret = entry.secret.get_secret_value()
        if not is_usable(secret):
            yield f"secrets.{number}: is blank"
        elif secret != secret.strip() or not secret.isprintable():
            yield f"secrets.{number}: holds white space around it, or a line break"
        elif secret.startswith(("v1,", "v1a,")):
            yield f"secrets.{number}: is a signature (v1,…) and no secret"
        elif is_asymmetric(secret):
            yield from _private_key(secret, f"secrets.{number}")
        elif len(secret.removeprefix("whsec_").encode()) < shortest:
            yield f"secrets.{number}: livemode takes {shortest} bytes and more"


def _shared(settings: Settings) -> frozenset[str]:
    """The secrets that more than one merchant has."""
    holders: dict[str, set[str]] = {}
    for merchant in settings.merchants:
        for endpoint in merchant.endpoints:
            for entry in endpoint.secrets:
                holders.setdefault(entry.secret.get_secret_value(), set()).add(merchant.id)
    return frozenset(secret for secret, ids in holders.items() if len(ids) > 1)


def _not_ones_own(endpoint: EndpointTable, shared: frozenset[str]) -> Iterator[str]:
    for number, entry in enumerate(endpoint.secrets):
        if entry.secret.get_secret_value() in shared:
            yield (
                f"secrets.{number}: is another merchant's, too, who could sign what this one"
                " believes; give each its own"
            )


def _private_key(secret: str, where: str) -> Iterator[str]:
    try:
        private_key(secret)
    except InvalidRequest as refused:
        yield f"{where}: {refused}"


def _types(endpoint: EndpointTable) -> Iterator[str]:
    if not endpoint.types:
        yield 'types: names none; leave it out for all of them, or write "*"'
    for number, wanted in enumerate(endpoint.types):
        if wanted == "*" or wanted in _TYPES:
            continue
        if wanted.endswith(".*") and any(kind.startswith(wanted[:-1]) for kind in _TYPES):
            continue
        near = difflib.get_close_matches(wanted, (*_TYPES, *_FAMILIES), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_TYPES)}"
        yield f"types.{number}: no event is called {wanted!r}; {hint}"
