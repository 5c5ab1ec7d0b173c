"""No input may keep a parser busy: so much of the processor's time, and it has failed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

CPU_S: Final = 5.0
"""Of the process's own time, whatever else the machine does. Inputs have some kilobytes, and a
good parser needs milliseconds for them; what backtracks needs hours. Lower: a collection of
garbage is a finding."""


class TooSlow(AssertionError):
    """The one input took too long."""


@contextmanager
def bounded(seconds: float = CPU_S) -> Iterator[None]:
    """Raise TooSlow in the block when it has used up so much. Only the main thread has signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"one input took {seconds:g} s of the processor")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
