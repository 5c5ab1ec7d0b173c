"""The broker, chosen by its URL."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Final, cast
from urllib.parse import urlsplit

import dramatiq

from vpay_tasks.errors import Configuration
from vpay_tasks.runtime.carrier import CarryingBroker

BROKERS: Final = {
    "amqp": "vpay_tasks.runtime.rabbit_broker:RabbitBroker",
    "amqps": "vpay_tasks.runtime.rabbit_broker:RabbitBroker",
    "redis": "vpay_tasks.runtime.list_broker:ListBroker",
    "rediss": "vpay_tasks.runtime.list_broker:ListBroker",
    "unix": "vpay_tasks.runtime.list_broker:ListBroker",
    "valkey": "vpay_tasks.runtime.list_broker:ListBroker",
    "valkeys": "vpay_tasks.runtime.list_broker:ListBroker",
}
"""By name, as entry points are: the client library of a broker that nobody chose need not be
installed."""


def make(
    url: str, middleware: Iterable[dramatiq.Middleware] = (), *, verified: bool = False
) -> CarryingBroker:
    """The broker at `url`. Connects nothing yet. Raises Configuration for a scheme that no
    broker of ours speaks, for one whose library is missing, and, if `verified` (livemode), for
    options by which TLS would take somebody else's word."""
    scheme = urlsplit(url).scheme
    if scheme not in BROKERS:
        known = ", ".join(sorted(BROKERS))
        raise Configuration(f"broker.url: no broker speaks {scheme!r}; known: {known}")
    module, _, name = BROKERS[scheme].partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "vpay_tasks":
            raise
        raise Configuration(
            f"broker.url: {scheme} needs the library {error.name}, which is not installed:"
            ' pip install "vpay-tasks[rabbitmq]"'
        ) from None
    broker = cast("CarryingBroker", kind(url, middleware))
    if verified and (gullible := broker.gullible()):
        raise Configuration(f"broker.url: livemode verifies the broker's certificate: {gullible}")
    return broker
