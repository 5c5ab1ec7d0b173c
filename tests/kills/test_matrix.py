"""Whatever happens to a process where money moves or somebody is told, it heals as declared."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.kills.driver import Case, Point, steps_of
from tests.kills.places import Fault
from tests.kills.points import CASES
from tests.kills.world import World

SECONDS: Final = 5
ALWAYS: Final = frozenset(
    {
        "confirm_charge_committed-killed",
        "attempt_row_committed-killed",
        "claim_written-stopped",
        "publish_on_its_way-killed",
        "start_written-stopped",
        "the_rail_is_asked-killed",
        "settlement_event_written-killed",
        "settlement_committed-cut",
        "post_before_connecting-stopped",
        "record_written-killed",
        "vendors_event_kept_committed-cut",
        "grant_written-killed",
        "reap_written-killed",
    }
)
"""In every slice of `make test-more`."""


def cases() -> list[Any]:
    return [
        pytest.param(
            point,
            fault,
            id=name,
            marks=pytest.mark.more(seconds=SECONDS, always=name in ALWAYS),
        )
        for name, point, fault in named()
    ]


def named() -> list[tuple[str, Point, Fault]]:
    return [(f"{point.name}-{fault.value}", point, fault) for point, fault in CASES]


def test_what_is_always_run_is_there() -> None:
    assert {name for name, _, _ in named()} >= ALWAYS
    assert len({name for name, _, _ in named()}) == len(CASES)


@pytest.mark.parametrize(("point", "fault"), cases())
def test_a_process_that_is_harmed_leaves_what_others_end_as_declared(
    world: World, point: Point, fault: Fault
) -> None:
    play = point.play(world, f"{point.name}-{fault.value}")
    Case(world, play).run(steps_of(point, fault), point.ways[fault])
