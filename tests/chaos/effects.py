"""What a fault does, and how it is seen to have done it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.chaos.sampler import Sampler
from tests.chaos.schedule import Fault
from tests.chaos.town import Town

LOOK_EVERY_S: Final = 0.05


@dataclass(frozen=True)
class Effect:
    """`seen`: what made us say that it was effective, or why it was not."""

    effective: bool
    seen: str


@dataclass(frozen=True)
class Scene:
    """What an injector works with."""

    town: Town
    sampler: Sampler
    over: threading.Event
    """Set when the stretch is cut short: no fault goes on."""

    def dice(self, fault: Fault) -> random.Random:
        return random.Random(fault.dice)

    def last(self, seconds: float) -> None:
        self.over.wait(seconds)

    def until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Whether it came true within `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.over.wait(LOOK_EVERY_S):
                return bool(condition())
        return True


Injector = Callable[[Scene, Fault], Effect]
