"""The one place where the layers meet: settings become objects that know each other."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

from vpay_tasks.config import Settings
from vpay_tasks.core import kinds, task
from vpay_tasks.errors import Configuration, Severity
from vpay_tasks.handlers import (
    deliver_webhook,
    fan_out_events,
    grant_inbox,
    poll_charge,
    resubmit_charge,
    scan_deliveries,
    scan_inbox,
    scan_live_charges,
    sweep_expired,
    sweep_idle_customers,
    sweep_retention,
)
from vpay_tasks.handlers.context import Context
from vpay_tasks.inbox import vendors
from vpay_tasks.inbox.registry import GRANTS
from vpay_tasks.parts import database, inbox, rails, rails_or_faults, refuse, send_alerts
from vpay_tasks.runtime import actor
from vpay_tasks.runtime.broker import make as make_broker
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.runtime.daemon import Daemon
from vpay_tasks.runtime.process import WorkerProcess
from vpay_tasks.store import lanes
from vpay_tasks.store.db import Connection
from vpay_tasks.telemetry import alert, say
from vpay_tasks.webhooks import vetting
from vpay_tasks.webhooks.endpoints import Endpoints

__all__ = [
    "context",
    "database",
    "dispatcher",
    "inbox",
    "rails",
    "registry",
    "send_alerts",
    "worker",
]

BUILT_IN = (
    poll_charge,
    resubmit_charge,
    deliver_webhook,
    fan_out_events,
    grant_inbox,
    scan_inbox,
    sweep_expired,
    sweep_idle_customers,
    sweep_retention,
    scan_deliveries,
    scan_live_charges,
)
"""Importing a module of handlers declares its kinds."""


def context(settings: Settings, path: Path | None) -> Context:
    """What handlers reach. Raises Configuration with every fault of rails, endpoints and
    vendors."""
    faults = vetting.faults(settings)
    built = rails_or_faults(settings, faults)
    vendors.build(settings.inbox, faults)
    refuse(faults)
    return Context(
        db=database(settings, application="vpay worker"),
        rails=built,
        endpoints=Endpoints(settings, path=path),
        ladders=settings.ladders,
        windows=settings.windows,
    )


def registry(settings: Settings) -> task.Registry:
    """Every kind that the built-in and the user's modules declare, with the intervals of
    `settings`. Raises Configuration for a module that can't be imported."""
    for name in settings.worker.modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise Configuration(f"worker.modules: cannot import {name}: {error}") from error
    known = task.Registry()
    for declared in task.REGISTRY:
        window = kinds.SINGLETON_WINDOWS.get(declared.kind.name)
        if window is not None:
            every = getattr(settings.windows, window)
            kind = dataclasses.replace(declared.kind, every=every)
            known.add(dataclasses.replace(declared, kind=kind))
        else:
            known.add(declared)
    return known


def worker(settings: Settings, path: Path | None) -> CarryingBroker:
    """The broker of a worker process, with one actor per queue declared on it."""
    send_alerts(settings, "worker")
    known = registry(settings)
    made = context(settings, path)
    _tell_of_grants(settings)
    process = WorkerProcess(settings, known, made)
    broker = make_broker(
        settings.broker.url.get_secret_value(), [process], verified=settings.livemode.enabled
    )
    for queue in sorted({*settings.dispatch.queues, *(item.kind.queue for item in known)}):
        actor.declare(broker, queue, process.run)
    return broker


def _tell_of_grants(settings: Settings) -> None:
    """Which grants and vendors don't know each other; by a typing error in a name, a vendor's
    events would all be ignored and answered 2xx. No fault: a worker that refused to begin would
    stop payments for a function that is never called."""
    for vendor in sorted(GRANTS.vendors() - set(settings.inbox)):
        alert(
            Severity.ERROR,
            "a function grants events of a vendor that the settings don't have: it is never"
            " called; write [inbox.<vendor>], or mend the name in @inbox.on",
            action="inbox_grants",
            vendor=vendor,
        )
    for vendor in sorted(set(settings.inbox) - GRANTS.vendors()):
        say(
            Severity.WARN,
            "no function grants a vendor's events: all of them will be ignored; is its module"
            " in worker.modules?",
            action="inbox_grants",
            vendor=vendor,
        )


def dispatcher(settings: Settings, path: Path | None = None) -> Daemon:
    """`vpay-dispatch`, ready to `run()`."""
    faults = vetting.faults(settings)
    vendors.build(settings.inbox, faults)
    refuse(faults)
    send_alerts(settings, "dispatcher")
    known = registry(settings)
    strays = {item.kind.queue for item in known} - set(settings.dispatch.queues)
    if strays:
        raise Configuration(
            f"dispatch.queues: lacks {', '.join(sorted(strays))}, which tasks are declared for;"
            " their jobs would never be claimed"
        )
    endpoints = Endpoints(settings, path=path)

    def keep_caps(connection: Connection) -> None:
        lanes.set_caps(connection, endpoints.caps())

    return Daemon(
        settings,
        known,
        make_broker(settings.broker.url.get_secret_value(), verified=settings.livemode.enabled),
        database=database(settings, application="vpay metrics"),
        also=keep_caps,
    )
