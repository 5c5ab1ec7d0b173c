"""Signals that end a run, as an exception that unwinds it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """We were told to stop. Libraries know how to be interrupted by a KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP raises Stopped in the main thread. Later ones do
    nothing: they would break the cleaning up, which is bounded."""

    def stop(number: int, _: FrameType | None) -> None:
        for one in NUMBERS:
            # Not SIG_IGN: a child that starts at this moment would inherit that.
            signal.signal(one, lambda *_: None)
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
