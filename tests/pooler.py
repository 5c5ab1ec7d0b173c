"""A real PgBouncer in transaction mode, of a test's own: Debian's, in a folder, on a free port.

No wheel brings it: without it the tests of tests/e2e/test_pooler.py are left out, loudly;
where CI is set, nothing may be left out.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import pytest

from vpay_sandbox import install
from vpay_sandbox.process import end, free_port, spawn, tail, wait_until

PGBOUNCER: Final = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

SESSIONS: Final = 3
"""Fewer than the connections of one worker process: a session is soon somebody else's."""

LIMITS: Final = """\
ALTER ROLE {role} SET jit = off;
ALTER ROLE {role} SET lock_timeout = '15s';
ALTER ROLE {role} SET statement_timeout = '60s';
ALTER ROLE {role} SET idle_in_transaction_session_timeout = '60s';
"""
"""What the README tells an operator to give the role, word for word."""


class Pooler:
    """Between its start and its end, `url` leads to the database of `dsn`."""

    def __init__(self, folder: Path, dsn: str, *, user: str) -> None:
        assert PGBOUNCER is not None
        parts = urlsplit(dsn)
        self._port = free_port()
        self.url = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{self._port}"))
        self.log = folder / "pgbouncer.log"
        # It refuses to run as root, and reads its files as the user that it runs as.
        account = install.unprivileged()
        self._private = install.PrivateFolder(account) if account else None
        home = self._private.path if self._private else folder
        (home / "users").write_text(f'"{user}" ""\n')
        (home / "ini").write_text(
            "[databases]\n"
            f"* = host={parts.hostname} port={parts.port}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {home}/users\n"
            f"pool_mode = transaction\ndefault_pool_size = {SESSIONS}\nmax_client_conn = 200\n"
        )
        self._process: subprocess.Popen[bytes] = spawn(
            [PGBOUNCER, home / "ini"], log=self.log, account=account, death=signal.SIGINT
        )
        wait_until(self._ready, f"pgbouncer to listen; its log: {tail(self.log)}")

    def _ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def close(self) -> None:
        end(self._process, signal.SIGQUIT)
        if self._private is not None:
            self._private.remove()


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI") and PGBOUNCER is None:
        raise pytest.UsageError("CI is set and pgbouncer is missing: nothing may be left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if PGBOUNCER is not None:
        return
    left_out = {item for item in items if item.path.name == "test_pooler.py"}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if PGBOUNCER is None:
        terminalreporter.write_line(
            "NOT TESTED: a transaction pooler. pgbouncer is missing, so its tests were left out"
            " (Debian, Ubuntu: apt-get install pgbouncer)",
            red=True,
        )
