"""A standby that is away, behind a transaction pooler."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Eventually
from tests.environments.servers import deserted, waiting
from tests.pooler import SESSIONS, Pooler
from tests.silences import heard, impatient
from vpay_tasks.core.task import Kind
from vpay_tasks.store import db, jobs, silence
from vpay_tasks.store.silence import Told
from vpay_tasks.transport import Pooled


@pytest.fixture
def pooler(tmp_path: Path, lone: str) -> Iterator[Pooler]:
    (tmp_path / "pooler").mkdir()
    pooler = Pooler(tmp_path / "pooler", lone, user="postgres")
    yield pooler
    pooler.close()


def test_commits_that_fill_the_pooler_are_waited_for_and_leave_no_session_behind(
    lone: str,
    pooler: Pooler,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    impatient(monkeypatch)
    monkeypatch.setattr(silence, "QUESTIONS_MAX", 1_000_000)
    monkeypatch.setattr(db, "QUESTION_S", 0.3)

    def write(connection: db.Connection) -> None:
        with db.unit_of_work(connection) as tx:
            jobs.enqueue(tx, Kind("nothing"), {})

    with ExitStack() as opened, ThreadPoolExecutor(SESSIONS) as aside:
        connections = [
            opened.enter_context(db.connect(Pooled(pooler.url), application="writer"))
            for _ in range(SESSIONS)
        ]
        told = [heard(one) for one in connections]
        with deserted(lone, eventually):
            done = [aside.submit(write, one) for one in connections]
            # With every session taken, nobody is left to say that they are at work.
            eventually(lambda: all(one.count(Told.UNKNOWN) > 1 for one in told))
            assert len(waiting(lone, "writer")) == SESSIONS
            assert not any(one.done() for one in done)
        for one in done:
            one.result()
    # Questions without an answer were hung up on; that is nothing to look into.
    said = [getattr(record, "fields", {}).get("action") for record in caplog.records]
    assert "connection_silent" not in said
