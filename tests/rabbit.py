"""A real RabbitMQ of our own: Debian's server, in a folder, on ports of its own.

Nothing of the system's is touched: neither its node nor its cookie nor its port mapper. A
machine without the server says so by `RABBITMQ is None`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from vpay_sandbox.process import SandboxError, end, free_port, spawn, tail, wait_until

BOOT_S: Final = 90.0
"""It takes about 5 s alone; two at once beside a busy suite take longer."""

EAGER: Final = "{consumer_timeout, 2000}, {channel_tick_interval, 500}"
"""Milliseconds. A message that is not acknowledged for 2 s costs its consumer the channel;
the server's own default is half an hour."""


def _programs() -> Path | None:
    """The folder of the server's own scripts. Debian's wrappers in the path are of no use:
    they change the user and know one node only."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    return found[-1].parent if found and shutil.which("epmd") else None


RABBITMQ: Final = _programs()


class Rabbit:
    """One node. A restart keeps its port and its durable queues. Dies with this process."""

    def __init__(self, folder: Path, *, certificate: Path | None = None) -> None:
        """`certificate`: a file with its key, its chain and what signed it; then it also speaks
        TLS, on a port of its own."""
        self._certificate = certificate
        self.tls_port = free_port()
        self._folder = folder.resolve()
        self._port: int | None = None
        self._mapper: subprocess.Popen[bytes] | None = None
        self._node: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self.log = self._folder / "console.log"

    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._port}/%2F"

    def start(self) -> Self:
        """Returns when connections are accepted; nothing to do while it runs."""
        if self._node is not None and self._node.poll() is None:
            return self
        if RABBITMQ is None:
            raise SandboxError("rabbitmq-server is not installed")
        if self._port is None:
            self._port = free_port()
            self._environment = self._prepare(self._port)
            mapper_port = self._environment["ERL_EPMD_PORT"]
            # In the foreground and on our leash: else the node would start a daemon of it.
            self._mapper = spawn(
                ["epmd", "-port", mapper_port, "-address", "127.0.0.1"],
                log=self._folder / "epmd.log",
                death=signal.SIGKILL,
            )
            wait_until(lambda: _accepts(int(mapper_port)), "epmd to accept")
        self._node = spawn(
            [RABBITMQ / "rabbitmq-server"],
            log=self.log,
            death=signal.SIGKILL,
            env=self._environment,
            cwd=self._folder,
        )
        node, port = self._node, self._port
        wait_until(
            lambda: node.poll() is not None or _accepts(port),
            f"RabbitMQ to accept (log: {self.log})",
            timeout_s=BOOT_S,
            every_s=0.1,
        )
        if node.poll() is not None:
            raise SandboxError(f"RabbitMQ did not start; its log ends:\n{tail(self.log)}")
        return self

    def stop(self) -> None:
        """In good order."""
        if self._node is not None:
            end(self._node, signal.SIGTERM, timeout_s=60)
            self._node = None

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        if self._node is not None:
            end(self._node, signal.SIGKILL)
            self._node = None

    def control(self, *words: str) -> str:
        """What rabbitmqctl answers; about a second."""
        assert RABBITMQ is not None
        done = subprocess.run(
            [RABBITMQ / "rabbitmqctl", "--quiet", *words],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode != 0:
            raise SandboxError(f"rabbitmqctl {words[0]} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def close(self) -> None:
        self.kill()
        if self._mapper is not None:
            end(self._mapper, signal.SIGKILL)
            self._mapper = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare(self, port: int) -> dict[str, str]:
        """The node's files, and the environment that leads it and rabbitmqctl to them."""
        home = self._folder
        home.mkdir(parents=True, exist_ok=True)
        cookie = home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        settings = {
            "listeners.tcp.1": f"127.0.0.1:{port}",
            # The machine's disk is not this test's business.
            "disk_free_limit.absolute": "1MB",
            "log.console.level": "warning",
        }
        if self._certificate is not None:
            settings["listeners.ssl.1"] = f"127.0.0.1:{self.tls_port}"
            for what in ("cacertfile", "certfile", "keyfile"):
                settings[f"ssl_options.{what}"] = str(self._certificate)
            settings["ssl_options.verify"] = "verify_none"
        (home / "rabbitmq.conf").write_text("".join(f"{k} = {v}\n" for k, v in settings.items()))
        (home / "advanced.config").write_text(f"[{{rabbit, [{EAGER}]}}].\n")
        (home / "enabled_plugins").write_text("[].\n")
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # Its start script then becomes the node instead of watching over it.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": f"vpay-test-{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "no-such-file"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(home / "pid"),
            # Two cores for everything: no spinning while it waits for work.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
        }


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False
