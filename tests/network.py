"""A network of a test's own, in which any address is this machine's and every name is a lie.

`network(scenario, *args)` runs a module-level function in another process, whose namespaces
hold nothing of this machine's network: all of IPv4 and IPv6 is on its loopback, so a
connection to any address, forbidden ones included, is made and can be seen; its resolver
asks the test's own DNS server; its trust store holds the test's own CA. So the guard is tried
by livemode's rules. Needs root, or a kernel that gives plain users namespaces: without
either those tests are left out, loudly; where CI is set, nothing may be left out.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from tests.brokers import CI

NEW_NS, NEW_USER, NEW_NET = 0x20000, 0x1000_0000, 0x4000_0000
OWN_FILES: Final = {
    "/etc/resolv.conf": "nameserver 127.0.0.1\nsearch corp.test\noptions ndots:5\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
    "/etc/hosts": "127.0.0.1 localhost\n10.1.2.3 listed.example.com\n",
}
"""A search domain that is tried first for any name with less than five dots, as in
Kubernetes."""
CA_FILE: Final = "cert.pem"


class Network(Protocol):
    """Runs a function inside; what it returns or raises comes out."""

    def __call__(self, scenario: Callable[..., Any], *args: Any) -> Any: ...


def enter() -> None:
    """Put this process, which must have one thread, into namespaces of its own."""
    for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):  # would lead past the own trust store
        os.environ.pop(variable, None)
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(NEW_NS | NEW_NET | (NEW_USER if uid else 0)) != 0:
        raise OSError(ctypes.get_errno(), "no namespaces")
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    for command in (
        "mount --make-rprivate /",
        "ip link set lo up",
        "ip route add local 0.0.0.0/0 dev lo",
        "ip -6 route add local ::/0 dev lo",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    folder = Path(tempfile.mkdtemp(prefix="vpay-network-"))
    for path, text in OWN_FILES.items():
        own = folder / Path(path).name
        own.write_text(text)
        if Path(path).exists():
            # Where a link leads: a mount stands on the file itself.
            _mount("--bind", own, Path(path).resolve())
    shutil.rmtree(folder)  # the mounts keep what they show
    # OpenSSL's own place for trusted certificates, empty but for what a scenario puts there.
    _mount("-t", "tmpfs", "none", trust_store())


def trust_store() -> Path:
    return Path(ssl.get_default_verify_paths().openssl_cafile).parent


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def _missing() -> str | None:
    """Why there are no such networks here."""
    own = ["unshare", "--net", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    try:
        done = subprocess.run(
            [*own, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()


MISSING: Final = _missing()


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    """One such network for a test process; scenarios leave nothing behind in it."""
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit threads
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=enter) as inside:
        yield lambda scenario, *args: inside.submit(scenario, *args).result(timeout=60)


def pytest_configure(config: pytest.Config) -> None:
    if CI and MISSING is not None:
        raise pytest.UsageError(f"CI is set and there are no network namespaces: {MISSING}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if MISSING is None:
        return
    left_out = [item for item in items if "network" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if MISSING is not None:
        terminalreporter.write_line(
            "NOT TESTED: the egress guard on real sockets. It needs root, or user namespaces"
            f" ({MISSING})",
            red=True,
        )
