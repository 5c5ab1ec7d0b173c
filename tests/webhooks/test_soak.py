"""Fifty thousand deliveries leave the process as it was."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.house import ROOT
from tests.webhooks.liar import Authority
from vpay_tasks.webhooks.egress import SANDBOX
from vpay_tasks.webhooks.send import post

THREADS = 8
TLS_EVERY = 5
"""A handshake costs ten times what a plain POST does."""


@contextmanager
def many_hosts(certificate: Path) -> Iterator[tuple[int, int]]:
    argv = [sys.executable, "-m", "tests.webhooks.many_hosts", str(certificate)]
    with subprocess.Popen(
        argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        plain, encrypted = server.stdout.readline().split()
        yield int(plain), int(encrypted)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident() -> int:
    """Bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.all
def test_fifty_thousand_deliveries_to_five_hundred_hosts_leave_nothing_behind(
    tmp_path: Path,
) -> None:
    authority = Authority()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(cadata=authority.pem.decode())
    tls.check_hostname = False  # one certificate for five hundred addresses
    came: Counter[int | None] = Counter()
    seen: list[tuple[int, int]] = []
    with (
        many_hosts(authority.server(tmp_path, "many.example.com")) as (plain, encrypted),
        ThreadPoolExecutor(THREADS) as threads,
    ):

        def deliver(number: int) -> int | None:
            host = f"127.0.{number % 500 // 100}.{1 + number % 100}"
            by_tls = number % TLS_EVERY == 0
            where = f"https://{host}:{encrypted}/" if by_tls else f"http://{host}:{plain}/"
            body = b'{"id":"evt_1"}'
            return post(where, {}, body, rules=SANDBOX, connect=20, whole=30, tls=tls).status

        for part in range(50):
            came.update(threads.map(deliver, range(part * 1_000, (part + 1) * 1_000)))
            seen.append((descriptors(), resident()))
    assert sum(came.values()) == 50_000
    assert came[200] > 20_000
    assert came[500] > 10_000
    # The first third warms up: threads, buffers, the allocator's arenas.
    first, last = seen[16], seen[-1]
    assert last[0] <= first[0] + THREADS
    assert last[1] <= first[1] * 1.1
