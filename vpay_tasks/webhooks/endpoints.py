"""Merchants' endpoints, as the settings have them now.

The file, and those that its placeholders take secrets from, are looked at every 5 s and
read again when one changed, without a restart. A broken file changes nothing and alerts once:
a typing error must not take a merchant's endpoints.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from vpay_tasks import config
from vpay_tasks.config import EndpointSecret, EndpointTable, MerchantTable, Settings
from vpay_tasks.core import kinds
from vpay_tasks.errors import Configuration, Severity, describe
from vpay_tasks.telemetry import alert, say
from vpay_tasks.webhooks import egress, vetting
from vpay_tasks.webhooks.sign import SIGNATURES_MAX, is_usable, key_id

LOOK_EVERY_S: Final = 5.0
"""How stale an endpoint may be. Lower: a stat per delivery for nothing."""

Mark = tuple[int, int, int]
"""What a file's change changes: time, size, inode."""


@dataclass(frozen=True)
class Endpoint:
    """One merchant's address for some types of events."""

    merchant_id: str
    id: str
    url: str = field(repr=False)  # a path may be as good as a password
    types: tuple[str, ...]
    cap: int | None
    config_hash: str
    """Changes with whatever decides where and how a delivery is sent."""
    secrets: tuple[EndpointSecret, ...] = field(repr=False)

    @property
    def lane(self) -> str:
        return kinds.endpoint_lane(self.merchant_id, self.id)

    def wants(self, event_type: str) -> bool:
        """Whether a type is named: exactly, as `invoice.*`, or by `*`."""
        return any(
            wanted in ("*", event_type)
            or (wanted.endswith(".*") and event_type.startswith(wanted[:-1]))
            for wanted in self.types
        )

    def live_secrets(self, at: datetime) -> tuple[str, ...]:
        """What signs at the instant `at`, newest first: not expired, not blank, at most the
        eight that a verifier looks at."""
        return tuple(
            entry.secret.get_secret_value()
            for entry in self.secrets
            if (entry.expires is None or entry.expires > at)
            and is_usable(entry.secret.get_secret_value())
        )[:SIGNATURES_MAX]


class Endpoints:
    """The endpoints of every merchant; shared by the threads of a process.

    `path` is the settings file to watch (None: what was given stays), `load` reads it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        path: Path | None = None,
        load: Callable[[], Settings] = config.load,
    ) -> None:
        self._path = path
        self._load = load
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._files = settings.files
        # None, so that the first look reads: the file may have changed since the settings
        # were loaded, and a mark taken now would hide that for ever.
        self._marks: list[Mark | None] | None = None
        # Without a file the environment was enough, and no file that never was is missed.
        self._was_there = path is not None and _mark(path) is not None
        self._broken = False
        self._by_merchant = _by_merchant(settings.merchants)
        self._troubles: dict[str, set[str]] = {}
        self.rules = egress.rules(settings)
        """Of the settings that the process began with: what it may call changes by restart."""

    def __repr__(self) -> str:
        return f"Endpoints({sum(map(len, self._by_merchant.values()))})"

    def for_event(self, merchant_id: str, event_type: str) -> list[Endpoint]:
        """The endpoints of the merchant that want events of this type."""
        self._look()
        endpoints = self._by_merchant.get(merchant_id, {}).values()
        return [endpoint for endpoint in endpoints if endpoint.wants(event_type)]

    def get(self, merchant_id: str, endpoint_id: str) -> Endpoint | None:
        """The endpoint; None if it left the settings."""
        self._look()
        return self._by_merchant.get(merchant_id, {}).get(endpoint_id)

    def all(self) -> list[Endpoint]:
        """Every endpoint of every merchant."""
        self._look()
        return [one for endpoints in self._by_merchant.values() for one in endpoints.values()]

    def caps(self) -> dict[str, int]:
        """Lane → cap, of the endpoints that have one of their own."""
        self._look()
        return {
            endpoint.lane: endpoint.cap
            for endpoints in self._by_merchant.values()
            for endpoint in endpoints.values()
            if endpoint.cap is not None
        }

    def is_new_trouble(self, endpoint: Endpoint, trouble: str | None) -> bool:
        """Whether this process hears of this trouble of the endpoint's for the first time
        since an attempt without one (None). A thousand deliveries to one dead name alert once,
        also when its resolver says now this, now that."""
        with self._lock:
            if trouble is None:
                self._troubles.pop(endpoint.lane, None)
                return False
            told = self._troubles.setdefault(endpoint.lane, set())
            new = trouble not in told
            told.add(trouble)
            return new

    def look_now(self) -> None:
        """Read the file again if it changed, without waiting for the five seconds."""
        if self._path is not None:
            with self._lock:
                self._reread()

    def _look(self) -> None:
        if self._path is None or time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        if self._lock.acquire(blocking=False):  # one thread reads; the others go on
            try:
                self._reread()
            finally:
                self._lock.release()

    def _reread(self) -> None:
        assert self._path is not None
        self._looked = time.monotonic()
        files = (self._path, *self._files)
        before = [_mark(file) for file in files]
        if before == self._marks:
            return
        if before[0] is None:  # not read: without its file, load() may find an empty one enough
            if self._was_there:
                self._tell_broken(Configuration("the settings file is gone"))
            return
        try:
            settings = self._checked()
        except Configuration as error:
            # Read at every look until it is mended: what is missing may be a file that no
            # mark is taken of yet.
            self._marks = None
            self._tell_broken(error)
            return
        if [_mark(file) for file in files] != before:
            return  # it was written while we read: half of each. The next look decides.
        self._was_there = True
        # Files named for the first time have no mark in it: the next look reads once more.
        self._marks = before
        self._files, self._broken = settings.files, False
        found = _by_merchant(settings.merchants)
        if found == self._by_merchant:
            return
        self._by_merchant = found
        say(
            Severity.INFO,
            "the endpoints were read again",
            action="endpoints_reloaded",
            endpoints=sum(map(len, self._by_merchant.values())),
        )

    def _checked(self) -> Settings:
        settings = self._load()
        if found := vetting.faults(settings):
            raise Configuration("; ".join(found))
        # Or what only a restart allows would be refused URL by URL, and each refusal is final.
        if found := vetting.faults(settings, self.rules):
            raise Configuration("; ".join(["restart this process to allow it", *found]))
        return settings

    def _tell_broken(self, error: Configuration) -> None:
        if not self._broken:
            self._broken = True
            alert(
                Severity.ERROR,
                "the changed settings are broken; the endpoints stay as they were",
                action="endpoints_kept",
                error=describe(error),
            )


def _mark(path: Path) -> Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _by_merchant(merchants: Iterable[MerchantTable]) -> Mapping[str, Mapping[str, Endpoint]]:
    return {
        merchant.id: {table.id: _endpoint(merchant.id, table) for table in merchant.endpoints}
        for merchant in merchants
    }


def _endpoint(merchant_id: str, table: EndpointTable) -> Endpoint:
    keys = [f"{key_id(entry.secret.get_secret_value())} {entry.expires}" for entry in table.secrets]
    text = "\n".join([table.url, *keys])
    return Endpoint(
        merchant_id=merchant_id,
        id=table.id,
        url=table.url,
        types=table.types,
        cap=table.cap,
        config_hash=hashlib.sha256(text.encode()).hexdigest()[:16],
        secrets=table.secrets,
    )
