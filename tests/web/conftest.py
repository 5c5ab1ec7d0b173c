"""The app on a real port: in a thread of this process, or as uvicorn's own command."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest
import uvicorn
from pydantic import SecretStr

from tests.conftest import Eventually
from tests.inbox.bench import tables
from tests.payment_kit import KEYS, opened
from tests.rails.benches import BENCHES
from tests.rails.conftest import stub
from tests.web.client import Client
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.config import DatabaseTable, Settings, WebTable, WindowsTable
from vpay_tasks.store.db import Database
from vpay_tasks.web import frame

__all__ = ["stub"]

Serve = Callable[..., Any]


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    with opened(dsn) as database:
        yield database


@pytest.fixture
def settings(dsn: str, stub: StubRail) -> Settings:
    """With every rail and every scheme of the inbox that there is."""
    return Settings(
        inbox=tables(),
        database=DatabaseTable(url=SecretStr(dsn)),
        keys=KEYS,
        rails={code: bench.table(stub) for code, bench in BENCHES.items()},
    )


@pytest.fixture
def serve(settings: Settings, eventually: Eventually) -> Serve:
    """`with serve(threads=1) as client:` – the app with these `[web]` settings, and with
    another database or more rails."""

    @contextmanager
    def serve(
        *,
        rails: Mapping[str, Any] = MappingProxyType({}),
        url: str = "",
        windows: WindowsTable | None = None,
        **web: Any,
    ) -> Iterator[Client]:
        changed = settings.model_copy(
            update={
                "web": WebTable(**web),
                "rails": {**settings.rails, **rails},
                "windows": windows or settings.windows,
                "database": DatabaseTable(url=SecretStr(url)) if url else settings.database,
            }
        )
        frame.quieten_the_server()  # as vpay_tasks.web does
        config = uvicorn.Config(frame.make(changed), port=0, log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            eventually(lambda: server.started)
            yield Client(server.servers[0].sockets[0].getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(20)

    return serve


@pytest.fixture
def client(serve: Serve) -> Iterator[Client]:
    with serve() as client:
        yield client
