"""The broker, chosen by its URL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import dramatiq

from vpay_tasks.errors import Configuration
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.list_broker import ListBroker

BROKERS: Final[dict[str, type[ListBroker]]] = {
    "redis": ListBroker,
    "rediss": ListBroker,
    "valkey": ListBroker,
    "valkeys": ListBroker,
    "unix": ListBroker,
}


def make(url: str, middleware: Iterable[dramatiq.Middleware] = ()) -> CarryingBroker:
    """The broker at `url`. Connects nothing yet. Raises Configuration for a scheme that no
    broker of ours speaks."""
    scheme = urlsplit(url).scheme
    if scheme not in BROKERS:
        known = ", ".join(sorted(BROKERS))
        raise Configuration(f"broker.url: no broker speaks {scheme!r}; known: {known}")
    return BROKERS[scheme](url, middleware)
