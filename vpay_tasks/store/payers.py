"""Payers' numbers as charges hold them: encrypted, and never read here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vpay_tasks.store import sql

SQL = sql.load(__name__)

PAGE: Final = 200
"""Rows held at once while they are swapped: some milliseconds that a settlement may wait."""


def page(connection: sql.Connection, after: str) -> dict[str, str]:
    """The sealed numbers of the next charges behind `after`, in order of their ids."""
    return dict(sql.run(connection, SQL["page"], {"after": after, "page": PAGE}))


def swap(connection: sql.Connection, sealed: Mapping[str, tuple[str, str]]) -> int:
    """Replace what stood by what it is now, by charge id; how many still stood as given."""
    params = {
        "ids": list(sealed),
        "stood": [stood for stood, _ in sealed.values()],
        "sealed": [now for _, now in sealed.values()],
    }
    return len(sql.run(connection, SQL["swap"], params))
