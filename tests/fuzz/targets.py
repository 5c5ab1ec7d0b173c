"""Every parser that meets what strangers send or people write, and what it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, Phase, strategies

from tests.fuzz import places, wire
from tests.fuzz.limits import bounded

TARGETS: Final[dict[str, tuple[strategies.SearchStrategy[Any], Callable[[Any], None]]]] = {
    "messages": (wire.messages(), wire.a_message),
    "signatures": (wire.signed_bodies(), wire.a_signature),
    "vendors": (wire.vendors_deliveries(), wire.a_vendors_delivery),
    "bodies": (wire.jsons(), wire.a_body),
    "answers": (wire.answers(), wire.an_answer),
    "callbacks": (wire.callbacks(), wire.a_callback),
    "urls": (places.urls(), places.a_url),
    "settings": (places.settings_files(), places.a_settings_file),
    "commands": (places.command_lines(), places.a_command_line),
    "instants": (places.instants(), places.an_instant),
}
"""By name: what is given, and the check, which raises for whatever is not promised."""


def attack(name: str, *, cases: int, seed: int | None = None) -> int:
    """Give the target `cases` inputs; how many were run. Raises what the check raised, with the
    smallest input that does it in a note of the error."""
    strategy, check = TARGETS[name]
    ran = 0

    @hypothesis.settings(
        max_examples=cases,
        deadline=None,
        database=None,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def run(given: Any) -> None:
        nonlocal ran
        ran += 1
        with bounded():
            check(given)

    if seed is not None:
        run = hypothesis.seed(seed)(run)
    run()
    return ran


def seeds(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1
