"""Postgres servers in odd places, of a test's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.conftest import Eventually

WAITING = """
SELECT pid
FROM pg_stat_activity
WHERE wait_event = 'SyncRep'
    AND application_name = %s
"""


def asked(url: str, query: str, *params: object) -> list[tuple[Any, ...]]:
    """One statement by a session of its own, which waits for no standby."""
    with psycopg.connect(url, autocommit=True, application_name="aside") as connection:
        connection.execute("SET synchronous_commit = local")
        cursor = connection.execute(query.encode(), params)
        return cursor.fetchall() if cursor.description else []


def set_standbys(url: str, names: str) -> None:
    """Change synchronous_standby_names while the server runs; soon, not at once."""
    asked(url, f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    asked(url, "SELECT pg_reload_conf()")


def waiting(url: str, application: str) -> list[int]:
    """The backends of `application` whose commits wait for a standby."""
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
