"""An event beside the change that it reports, in the same transaction."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from vpay_tasks.core.events import EventType, render
from vpay_tasks.core.ids import RAW_BYTES, new_id
from vpay_tasks.store import events, sql


def append(
    tx: sql.Connection,
    type_: EventType,
    *,
    object_id: str,
    merchant_id: str,
    customer_id: str | None,
    livemode: bool,
    at: datetime,
    thing: Mapping[str, Any],
) -> None:
    """Write the event of a change that this transaction has just made, at `at` by the
    database's clock, to `thing`: the object as merchants see it."""
    event_id = new_id("evt", secrets.token_bytes(RAW_BYTES))
    events.append(
        tx,
        event_id=event_id,
        merchant_id=merchant_id,
        type=type_.value,
        object_id=object_id,
        customer_id=customer_id,
        livemode=livemode,
        body=render(
            event_id,
            type_,
            created=int(at.timestamp()),
            livemode=livemode,
            merchant=merchant_id,
            thing=thing,
        ),
    )
