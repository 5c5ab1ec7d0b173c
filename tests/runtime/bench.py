"""A runner on a real database, with tasks that a test declares on the spot."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from typing import Any

from tests.factories import claimed
from vpay_tasks.config import LaddersTable, Settings, WindowsTable
from vpay_tasks.core.task import Kind, Registry, Task
from vpay_tasks.handlers.context import Context
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.runtime.run import Running
from vpay_tasks.runtime.run_job import Runner
from vpay_tasks.runtime.settle import Settler
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoints


class Bench:
    """One worker process's insides, without its threads: messages are run by the test."""

    def __init__(self, database: Database, url: str) -> None:
        self.database = database
        self.registry = Registry()
        self.settler = Settler(url, self.registry, application="test")
        self.settler.start()
        self.runner = Runner(
            worker="w_test",
            context=Context(
                db=database,
                rails={},
                endpoints=Endpoints(Settings()),
                ladders=LaddersTable(),
                windows=WindowsTable(),
            ),
            registry=self.registry,
            running=Running(),
            settler=self.settler,
            run_lease=30.0,
            ladders=LaddersTable(),
            windows=WindowsTable(),
        )

    def task(self, handler: Callable[..., Any], **kind: Any) -> None:
        """Declare `handler` as the kind `a_kind` (or `name=`)."""
        shape = Kind(**{"name": "a_kind", **kind})
        self.registry.add(Task(shape, handler, inspect.signature(handler)))

    def run(self, *, copies: int = 1, batches: dict[str, int] | None = None) -> None:
        """Claim what is due and run it; each message `copies` times."""
        with self.database.connection() as connection:
            messages = claimed(connection, batches=batches).messages
        for message in messages * copies:
            self.runner.run_message(Envelope("default", tuple(message.ids), message.lease))

    def close(self) -> None:
        self.settler.close()
        self.runner.close()

    def forged(self, job_id: int) -> None:
        self.runner.run_message(Envelope("default", (job_id,), uuid.uuid4()))
