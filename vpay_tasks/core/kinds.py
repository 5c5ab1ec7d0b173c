"""The built-in kinds: names, queues and dedupe keys, as one constant (spec 1).

They stand below the handlers so that whoever enqueues one (a confirm, the fan-out)
needs no import of the code that runs it. A singleton's interval is `every`, taken from
the settings' windows by its name in SINGLETON_WINDOWS.
"""

from __future__ import annotations

from vpay_tasks.core.task import REGISTRY, Kind, Task
from vpay_tasks.errors import Configuration

POLL_CHARGE = Kind("poll_charge", queue="payments", priority=1, protected=True, built_in=True)
RESUBMIT_CHARGE = Kind(
    "resubmit_charge", queue="payments", priority=1, protected=True, built_in=True
)
DELIVER_WEBHOOK = Kind("deliver_webhook", queue="webhooks", protected=True, built_in=True)
GRANT_INBOX = Kind("grant_inbox", queue="inbox", priority=1, protected=True, built_in=True)
FAN_OUT_EVENTS = Kind(
    "fan_out_events",
    queue="housekeeping",
    priority=0,
    protected=True,
    built_in=True,
    singleton="fanout:events",
    every=5.0,
)
SWEEP_EXPIRED = Kind(
    "sweep_expired",
    queue="housekeeping",
    protected=True,
    built_in=True,
    singleton="sweep:expired",
    every=3_600.0,
)
SWEEP_IDLE_CUSTOMERS = Kind(
    "sweep_idle_customers",
    queue="housekeeping",
    protected=True,
    built_in=True,
    singleton="sweep:customers",
    every=3_600.0,
)
SWEEP_RETENTION = Kind(
    "sweep_retention",
    queue="housekeeping",
    protected=True,
    built_in=True,
    singleton="sweep:retention",
    every=3_600.0,
)
SCAN_DELIVERIES = Kind(
    "scan_deliveries",
    queue="housekeeping",
    # A million pending rows take some 20 s.
    budget=300.0,
    protected=True,
    built_in=True,
    singleton="scan:deliveries",
    every=600.0,
)
SCAN_INBOX = Kind(
    "scan_inbox",
    queue="housekeeping",
    protected=True,
    built_in=True,
    singleton="scan:inbox",
    every=600.0,
)
SCAN_LIVE_CHARGES = Kind(
    "scan_live_charges",
    queue="housekeeping",
    protected=True,
    built_in=True,
    singleton="scan:live",
    every=600.0,
)
SINGLETON_WINDOWS = {
    "scan_deliveries": "scan_every",
    "fan_out_events": "fan_out_every",
    "scan_inbox": "scan_every",
    "sweep_expired": "sweep_every",
    "sweep_idle_customers": "sweep_every",
    "sweep_retention": "sweep_every",
    "scan_live_charges": "scan_every",
}
"""Which of the settings' windows is a singleton's interval."""

INBOX_KEY = "inbox:"
"""The beginning of every grant's dedupe key; a row's id follows."""

BUILT_IN = {
    kind.name: kind
    for kind in (
        POLL_CHARGE,
        RESUBMIT_CHARGE,
        DELIVER_WEBHOOK,
        GRANT_INBOX,
        FAN_OUT_EVENTS,
        SCAN_INBOX,
        SWEEP_EXPIRED,
        SWEEP_IDLE_CUSTOMERS,
        SWEEP_RETENTION,
        SCAN_DELIVERIES,
        SCAN_LIVE_CHARGES,
    )
}


def kind_of(named: str | Kind | Task) -> Kind:
    """The kind that an enqueue names. Raises Configuration for a name nobody declared."""
    match named:
        case Kind():
            return named
        case Task():
            return named.kind
        case str():
            task = REGISTRY.get(named)
            kind = task.kind if task is not None else BUILT_IN.get(named)
            if kind is None:
                raise Configuration(
                    f"no task {named!r} is declared in this process: import the module that"
                    " declares it, or pass the task itself"
                )
            return kind


def poll_key(charge_id: str) -> str:
    return f"poll:{charge_id}"


def resubmit_key(charge_id: str) -> str:
    return f"resubmit:{charge_id}"


def webhook_key(delivery_id: str) -> str:
    return f"webhook:{delivery_id}"


def inbox_key(row_id: int) -> str:
    return f"{INBOX_KEY}{row_id}"


def endpoint_lane(merchant_id: str, endpoint_id: str) -> str:
    return f"{merchant_id}/{endpoint_id}"
