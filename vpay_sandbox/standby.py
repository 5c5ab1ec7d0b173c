"""A second Postgres that follows a first one, and takes over when it is told to."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from vpay_sandbox import install, versions
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import SandboxError, wait_until


class Standby(Postgres):
    """A hot standby of `primary`, copied from it by pg_basebackup at the first start.

    It streams from `link`, which may be a proxy's port before the primary's own; the primary
    knows it as `name` in synchronous_standby_names and pg_stat_replication.
    """

    def __init__(
        self,
        folder: Path,
        primary: Postgres,
        *,
        name: str = "standby",
        link: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        version: int = versions.WHEEL,
    ) -> None:
        self._primary = primary
        follows = (
            f"host=127.0.0.1 port={link or primary.port} user=postgres application_name={name}"
            # What is cut is noticed, and taken up again, in seconds.
            " connect_timeout=5 keepalives_idle=5 keepalives_interval=2 keepalives_count=3"
        )
        super().__init__(
            folder,
            settings={
                # A link that comes back is used at once.
                "wal_retrieve_retry_interval": "100ms",
                **settings,
                "primary_conninfo": follows,
            },
            version=version,
        )

    def promote(self) -> None:
        """Take over; returns once writes are accepted."""
        if self.pid is None:
            raise SandboxError("a standby that does not run can't be promoted")
        # Its own from the first moment on: a server may look for it before the signal.
        order = self._own(self.data / "order")
        order.rename(self.data / "promote")
        os.kill(self.pid, signal.SIGUSR1)
        # The file goes as the last thing before writes are accepted.
        wait_until(
            lambda: not (self.data / "standby.signal").exists(),
            f"the standby to be promoted (log: {self.log})",
            timeout_s=60.0,
        )

    def _fill(self, part: Path) -> None:
        # The wheel's, whatever the server's version: the others bring none, and it speaks to
        # every older one.
        tools = install.postgres_bin(self._account)
        self._tool(
            tools / "pg_basebackup",
            *("-D", part, "-h", "127.0.0.1", "-p", str(self._primary.port), "-U", "postgres"),
            *("--wal-method=stream", "--checkpoint=fast", "--no-sync"),
        )
        self._own(part / "standby.signal")

    def _own(self, path: Path) -> Path:
        """An empty file of the server's user."""
        path.touch()
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)
        return path
