"""Waiting for the servers at boot: a clear line, back-off, and an end to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import tenacity
from tenacity.stop import stop_base

from vpay_tasks.errors import Severity, VpayError, describe
from vpay_tasks.runtime.carrier import CarryingBroker
from vpay_tasks.store import db, migrate
from vpay_tasks.telemetry import say

BOOT_PATIENCE_S: Final = 60.0
"""How long a process waits for both servers before it gives up: longer than they restart,
shorter than an operator's patience with a silent container."""


def wait_for_servers(
    url: str, broker: CarryingBroker, *, given_up: Callable[[], bool] = lambda: False
) -> None:
    """Wait up to a minute for Postgres (migrated) and the broker; say once what is missing.
    Raises what was missing last; `given_up` ends the waiting early."""
    ends_at = time.monotonic() + BOOT_PATIENCE_S
    for reach in (lambda: _reach_database(url), broker.ping):
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(VpayError),
            stop=_Stop(lambda: given_up() or time.monotonic() >= ends_at),
            wait=tenacity.wait_exponential(multiplier=0.25, max=2),
            before_sleep=_say_waiting,
            reraise=True,
        )
        retrying(reach)


class _Stop(stop_base):
    def __init__(self, over: Callable[[], bool]) -> None:
        self._over = over

    def __call__(self, retry_state: tenacity.RetryCallState) -> bool:
        return self._over()


def _reach_database(url: str) -> None:
    connection = db.connect(url, application="vpay boot")
    try:
        migrate.require_current(connection)
    finally:
        connection.close()


def _say_waiting(state: tenacity.RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        error = state.outcome.exception()
        say(
            Severity.WARN,
            "waiting for a server",
            action="boot_wait",
            error=describe(error) if error is not None else "",
            patience=BOOT_PATIENCE_S,
        )
