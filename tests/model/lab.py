"""Where the model runs: one Postgres on the moved clock, one receiver, and how it is driven."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.invariants import install
from tests.model.audit import TRIGGERS
from tests.model.clock import FakedPostgres
from tests.model.connection import Server
from tests.model.machine import Installation
from tests.model.outside import Receiver
from tests.model.sessions import TIME
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect


@contextlib.contextmanager
def lab(folder: Path) -> Iterator[type[Installation]]:
    """The machine, on servers of its own."""
    logger = logging.getLogger("vpay_tasks")
    library = logging.getLogger("psycopg")
    with FakedPostgres(folder) as postgres, contextlib.closing(Receiver()) as receiver:
        url = postgres.url()
        with connect(url, application="model") as connection:
            migrate.apply(connection)
            connection.execute(TRIGGERS.encode())
            install(connection)
        TIME.clock = postgres.clock
        # It has thousands of things to say; what they come to is counted.
        logger.disabled = library.disabled = True
        with contextlib.closing(Server(url)) as server:
            yield type(
                "Installation",
                (Installation,),
                {"server": server, "receiver": receiver, "record": Counter()},
            )
        logger.disabled = library.disabled = False


def drive(
    machine: type[Installation], number: int, *, examples: int, steps: int, shrinks: bool
) -> None:
    """`examples` programs of at most `steps` rules each, from the seed `number`."""
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if shrinks else [])]
    seed(number)(machine)
    asked = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=phases,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=asked)
    except Exception as error:
        error.add_note(f"From the seed {number}: {examples} programs of {steps} rules.")
        raise
