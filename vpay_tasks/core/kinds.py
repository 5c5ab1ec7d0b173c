"""The built-in kinds: names, queues and dedupe keys, as one constant (spec 1).

They stand below the handlers so that whoever enqueues one (a confirm, the fan-out)
needs no import of the code that runs it. A new sweep is one line here and one handler.
"""

from __future__ import annotations

from vpay_tasks.config import WindowsTable
from vpay_tasks.core.task import REGISTRY, Kind, Task
from vpay_tasks.errors import Configuration

BUILT_IN: dict[str, Kind] = {}
SINGLETON_WINDOWS: dict[str, str] = {}
"""Which of the settings' windows is a singleton's interval."""


def _built_in(
    name: str,
    queue: str,
    *,
    priority: int = 2,
    budget: float = 60.0,
    singleton: str | None = None,
    every: float | None = None,
) -> Kind:
    kind = Kind(
        name,
        queue=queue,
        priority=priority,
        budget=budget,
        protected=True,
        built_in=True,
        singleton=singleton,
        every=every,
    )
    BUILT_IN[name] = kind
    return kind


def _singleton(
    name: str, key: str, window: str, *, priority: int = 2, budget: float = 60.0
) -> Kind:
    """A kind of which one job stands at any time, under `key`; `window` names its interval."""
    SINGLETON_WINDOWS[name] = window
    every = WindowsTable.model_fields[window].default
    return _built_in(
        name, "housekeeping", priority=priority, budget=budget, singleton=key, every=every
    )


POLL_CHARGE = _built_in("poll_charge", "payments", priority=1)
RESUBMIT_CHARGE = _built_in("resubmit_charge", "payments", priority=1)
DELIVER_WEBHOOK = _built_in("deliver_webhook", "webhooks")
GRANT_INBOX = _built_in("grant_inbox", "inbox", priority=1)
FAN_OUT_EVENTS = _singleton("fan_out_events", "fanout:events", "fan_out_every", priority=0)
SCAN_LIVE_CHARGES = _singleton("scan_live_charges", "scan:live", "scan_every")
# A million pending rows take some 20 s.
SCAN_DELIVERIES = _singleton("scan_deliveries", "scan:deliveries", "scan_every", budget=300.0)
SCAN_INBOX = _singleton("scan_inbox", "scan:inbox", "scan_every")
SWEEP_EXPIRED = _singleton("sweep_expired", "sweep:expired", "sweep_every")
SWEEP_IDLE_CUSTOMERS = _singleton("sweep_idle_customers", "sweep:customers", "sweep_every")
SWEEP_RETENTION = _singleton("sweep_retention", "sweep:retention", "sweep_every")

INBOX_KEY = "inbox:"
"""The beginning of every grant's dedupe key; a row's id follows."""


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
