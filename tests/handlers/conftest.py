"""What a delivery's handler is run with by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.webhooks.receivers import Receiver, receiving
from tests.webhooks.world import context, endpoint, settings
from vpay_tasks.handlers.context import Context
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoints


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def ctx(database: Database, receiver: Receiver) -> Context:
    return context(database, Endpoints(settings(endpoint(receiver.url))))
