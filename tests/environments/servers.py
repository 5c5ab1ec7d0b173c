"""Postgres servers in odd places, of a test's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.conftest import PG, Eventually
from tests.e2e.proxy import Proxy
from tests.invariants import install
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.standby import Standby
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect

UNSYNCED = {"fsync": "off"}
"""Tests kill processes; no test cuts the power."""

STREAMING = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
WAITING = """
SELECT pid
FROM pg_stat_activity
WHERE wait_event = 'SyncRep'
    AND starts_with(application_name, %s)
"""


def asked(url: str, query: str, *params: object) -> list[tuple[Any, ...]]:
    """One statement by a session of its own, which waits for no standby."""
    with psycopg.connect(url, autocommit=True, application_name="aside") as connection:
        connection.execute("SET synchronous_commit = local")
        cursor = connection.execute(query.encode(), params)
        return cursor.fetchall() if cursor.description else []


def installed(url: str) -> None:
    """The tables, and the checker's triggers beside them."""
    with connect(url, application="tests") as connection:
        migrate.apply(connection)
        install(connection)


def set_standbys(url: str, names: str) -> None:
    """Change synchronous_standby_names while the server runs; soon, not at once."""
    asked(url, f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    asked(url, "SELECT pg_reload_conf()")


def waiting(url: str, application: str) -> list[int]:
    """The backends of sessions named `application…` whose commits wait for a standby."""
    return [pid for (pid,) in asked(url, WAITING, application)]


@contextmanager
def deserted(url: str, eventually: Eventually) -> Iterator[None]:
    """The server's synchronous standby is gone: inside the block no commit comes to its end."""
    asked(url, "CREATE TABLE IF NOT EXISTS public.canaries ()")
    set_standbys(url, "gone")
    over = threading.Event()

    def sing() -> None:
        # A server takes its settings up in its own time: the first commit that waits shows it.
        with psycopg.connect(url, autocommit=True, application_name="canary") as connection:
            while not over.is_set():
                connection.execute("INSERT INTO public.canaries DEFAULT VALUES")

    canary = threading.Thread(target=sing)
    canary.start()
    try:
        eventually(lambda: waiting(url, "canary"))
        yield
    finally:
        over.set()
        set_standbys(url, "")
        canary.join()


class Pair:
    """A primary with the tables and the checker's triggers, and a standby that follows it over
    `link`; `url` names both, and leads to whichever takes writes."""

    def __init__(self, folder: Path, eventually: Eventually, *, synchronous: bool) -> None:
        self._eventually = eventually
        self.synchronous = synchronous
        self.primary = Postgres(folder / "primary", settings=UNSYNCED, version=PG).start()
        installed(self.primary.url())
        self.link = Proxy(("127.0.0.1", self.primary.port))
        self.standby = Standby(
            folder / "standby",
            self.primary,
            link=self.link.port,
            settings=UNSYNCED,
            version=PG,
        ).start()
        if synchronous:
            set_standbys(self.primary.url(), "standby")
        self.follows()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in (self.primary, self.standby))
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def follows(self) -> None:
        """Wait until the standby streams, as it was asked to."""
        wanted = [("sync" if self.synchronous else "async",)]
        self._eventually(lambda: asked(self.primary.url(), STREAMING) == wanted)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside the block the standby hears nothing of the primary, nor the other way round."""
        self.link.refuse()
        try:
            yield
        finally:
            self.link.accept_again()

    def fail_over(self) -> None:
        """The primary dies, and the standby is told to take over."""
        self.primary.kill()
        self.standby.promote()

    def close(self) -> None:
        self.link.close()
        self.standby.close()
        self.primary.close()
