"""What every process of an application is made of, be it a worker or a web server: the database,
the rails and the inbox of the settings. No broker: whoever needs one goes to wiring.py."""

from __future__ import annotations

import importlib

from vpay_tasks import telemetry
from vpay_tasks.config import Settings
from vpay_tasks.errors import Configuration
from vpay_tasks.inbox import vendors
from vpay_tasks.inbox.receive import Inbox
from vpay_tasks.payments import payer
from vpay_tasks.rails import build
from vpay_tasks.rails.port import RailPort
from vpay_tasks.store.db import Database
from vpay_tasks.store.hints import Hinter


def send_alerts(settings: Settings, process: str) -> None:
    """From now on this process's alerts go where the settings say, besides its log. Raises
    Configuration if the library for it is missing."""
    if settings.sentry.dsn is None:
        telemetry.send_alerts_to()
        return
    try:
        reports = importlib.import_module("vpay_tasks.sentry")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "vpay_tasks":
            raise
        raise Configuration(
            f"sentry.dsn: needs the library {error.name}, which is not installed:"
            ' pip install "vpay-tasks[sentry]"'
        ) from None
    telemetry.send_alerts_to(reports.Reports(settings.sentry, process))


def database(settings: Settings, *, application: str = "vpay", size: int | None = None) -> Database:
    """The database of an application or a worker: pool (`size` connections, or the settings'
    number), units of work, hints."""
    url = settings.database_url
    return Database(
        url,
        size=size or settings.database.pool,
        application=application,
        hints=Hinter(url, application=application),
        keys=settings.keys,
        windows=settings.windows,
        livemode=settings.livemode.enabled,
    )


def rails(settings: Settings) -> dict[str, RailPort]:
    """The rails of the settings, by code. Raises Configuration with every fault of theirs."""
    faults: list[str] = []
    built = rails_or_faults(settings, faults)
    refuse(faults)
    return built


def rails_or_faults(settings: Settings, faults: list[str]) -> dict[str, RailPort]:
    """The rails that could be made; every fault of theirs is appended to `faults`."""
    built = build(settings.rails, settings.windows, faults)
    payer.ring(settings.keys, faults)
    return built


def refuse(faults: list[str]) -> None:
    """Raise Configuration if there are any, all at once: a person mends a file once, not fault
    by fault."""
    if faults:
        lines = "\n".join(f"  {fault}" for fault in sorted(faults))
        raise Configuration(f"settings: {len(faults)} fault(s)\n{lines}")


def inbox(settings: Settings, db: Database) -> Inbox:
    """What takes vendors' webhooks in, once per process. Raises Configuration with every fault
    of the settings' vendors."""
    faults: list[str] = []
    built = vendors.build(settings.inbox, faults)
    refuse(faults)
    return Inbox(db, built)
