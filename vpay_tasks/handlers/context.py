"""What a handler may reach: made once per process by wiring, passed to every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from vpay_tasks.config import LaddersTable, WindowsTable
from vpay_tasks.rails.port import RailPort
from vpay_tasks.store import clock
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoints


@dataclass(frozen=True)
class Context:
    """The outside as a handler sees it. Nothing in it is a clock of this machine."""

    db: Database
    rails: Mapping[str, RailPort]
    endpoints: Endpoints
    ladders: LaddersTable
    windows: WindowsTable

    def now_from_db(self) -> datetime:
        """The database's `clock_timestamp()`, aware, UTC. Raises Storage."""
        with self.db.connection() as connection:
            return clock.now(connection)
