"""A ping: an event by its shape and its signature, so that a receiver's verification sees no
difference. It is stored nowhere, in no list of types, and never retried."""

from __future__ import annotations

import os
from datetime import datetime

from vpay_tasks.config import Settings
from vpay_tasks.core import events, ids
from vpay_tasks.errors import Configuration
from vpay_tasks.webhooks import egress, send
from vpay_tasks.webhooks.endpoints import Endpoint
from vpay_tasks.webhooks.send import Answer
from vpay_tasks.webhooks.sign import headers


def ping(endpoint: Endpoint, settings: Settings, *, now: datetime) -> Answer:
    """Post a ping as a delivery would be: signed with the secrets that are valid at `now`,
    within the same deadlines, past the same guard. Also to an endpoint that is paused. Raises
    Configuration for an endpoint without a secret: nothing goes out unsigned."""
    secrets = endpoint.live_secrets(now)
    if not secrets:
        raise Configuration(f"{endpoint.lane} has no secret that is valid now: nothing was sent")
    ping_id = ids.new_id("ping", os.urandom(ids.RAW_BYTES))
    seconds = int(now.timestamp())
    body = events.render(
        ping_id,
        "ping",
        created=seconds,
        livemode=settings.livemode.enabled,
        merchant=endpoint.merchant_id,
        thing={"id": endpoint.id, "object": "endpoint"},
    )
    return send.post(
        endpoint.url,
        headers(body, secrets, seconds, event_id=ping_id, attempt=1),
        body,
        rules=egress.rules(settings),
        connect=settings.windows.delivery_connect,
        whole=settings.windows.delivery_attempt,
        hide=secrets,
    )
