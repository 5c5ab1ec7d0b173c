"""Listening to what a silent connection is told about itself."""

from __future__ import annotations

from vpay_tasks.store import db
from vpay_tasks.store.silence import Told


def heard(connection: db.Connection) -> list[Told]:
    """What `connection` is told about itself from now on."""
    ask = connection.asked
    assert ask is not None
    told: list[Told] = []

    def asked(pid: int) -> Told:
        told.append(ask(pid))
        return told[-1]

    connection.asked = asked
    return told
