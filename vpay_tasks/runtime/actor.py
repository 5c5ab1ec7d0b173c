"""The one actor of a queue: it runs whatever envelope it is given the number of."""

from __future__ import annotations

from collections.abc import Callable

import dramatiq

from vpay_tasks.runtime.carrier import CarryingBroker, actor_name


def declare(broker: CarryingBroker, queue: str, run: Callable[[int], None]) -> None:
    """Declare `queue` on `broker`, and the actor that runs its messages."""

    def run_held(number: int) -> None:
        # None is what it must return: Dramatiq warns about any other value.
        run(number)

    dramatiq.actor(broker=broker, queue_name=queue, actor_name=actor_name(queue))(run_held)
