"""The audit schema's triggers, put beside a migrated database's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import psycopg

SCRIPT: Final = Path(__file__).with_name("audit.sql")


def install(connection: psycopg.Connection[Any]) -> None:
    """Once per database, by whoever owns its tables; in a transaction of its own."""
    with connection.transaction():
        connection.execute(SCRIPT.read_bytes())
