"""Silent connections: short waits for them, and what they are told about themselves."""

from __future__ import annotations

import pytest

from vpay_tasks.store import db, silence
from vpay_tasks.store.silence import Told


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects from now on waits a tenth of a second for an answer, and asks again
    without a pause. The server keeps its own limit, which would end what is at work: so the
    margin on top of it is what shrinks."""
    monkeypatch.setattr(silence, "MARGIN_S", 0.1 - db.STATEMENT_TIMEOUT_S)


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
