"""What stands around the shipping code while a program runs: stepped connections, a clock that
is moved, and ears at the few places where tokens are presented and settles are told."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final
from unittest import mock

import tenacity.nap

from tests.model.audit import Audit
from tests.model.clock import Clock
from tests.model.connection import Server, Stepped
from tests.model.sessions import THREADING, TIME
from vpay_tasks.core.settling import Verb
from vpay_tasks.handlers import resubmit_charge
from vpay_tasks.runtime import dispatcher, pulse, run, run_job, settle, start, timers
from vpay_tasks.store import db, jobs, leases, settles

WAITING: Final = (settle, start)
"""Where threads wait for each other."""

TIMED: Final = (dispatcher, pulse, run, settle, timers, resubmit_charge, tenacity.nap)
"""Where a process looks at its own clock."""


@contextlib.contextmanager
def stage(server: Server) -> Iterator[Clock]:
    """An empty database, and the shipping code on stepped connections and the moved clock."""
    server.empty()
    assert TIME.clock is not None
    Stepped.server = server
    random.seed(0)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(db, "Connection", Stepped))
        for module in WAITING:
            stack.enter_context(mock.patch.object(module, "threading", THREADING))
        for module in TIMED:
            stack.enter_context(mock.patch.object(module, "time", TIME))
        yield TIME.clock


@contextlib.contextmanager
def watched(audit: Audit) -> Iterator[None]:
    """`audit` hears of every token before it is presented, and of what becomes of a settle."""

    def telling(teller: Any) -> Any:
        def told(run: Any, ending: Any, *, won: bool) -> None:
            # Whose row is gone is taken for finished, where nothing but a count depends on it.
            by_count = teller is settle and ending.verb is Verb.FINISH
            audit.told.append((run.id, run.lease, won, ending.verb, by_count))
            tell(run, ending, won=won)

        return told

    tell = settle.tell_settled
    with ExitStack() as stack:
        for module, verb, tokens in HEARD:
            heard = _heard(audit, verb, getattr(module, verb), tokens)
            stack.enter_context(mock.patch.object(module, verb, heard))
        for teller in (settle, run_job):
            stack.enter_context(mock.patch.object(teller, "tell_settled", telling(teller)))
        yield


HEARD: Final = (
    (settles, "settle", lambda given: [(one.id, one.lease) for one in given]),
    (jobs, "start", lambda given: given),
    (jobs, "release", lambda given: given.items()),
    (leases, "renew", lambda given: given),
)


def _heard(audit: Audit, verb: str, function: Any, tokens: Any) -> Callable[..., Any]:
    def heard(connection: Any, given: Any, *more: Any, **named: Any) -> Any:
        audit.presented[verb] |= {(id_, str(token)) for id_, token in tokens(given)}
        return function(connection, given, *more, **named)

    return heard
