"""What a seed decides: the same soak each time, with every kind of fault in it."""

from __future__ import annotations

from tests.chaos.schedule import KINDS, STRETCH_S, missing, stretches
from tests.chaos.soak import INJECTORS


def test_a_seed_means_the_same_faults_each_time() -> None:
    assert stretches(7, 360) == stretches(7, 360)
    assert stretches(7, 360) != stretches(8, 360)


def test_two_minutes_have_every_kind_of_fault_and_none_outlasts_its_stretch() -> None:
    for seed in range(50):
        faults = [fault for stretch in stretches(seed, 120) for fault in stretch]
        assert {fault.kind for fault in faults} == set(KINDS)
        assert all(0 <= fault.at <= STRETCH_S - fault.seconds for fault in faults)
        assert all(fault.target in KINDS[fault.kind].targets for fault in faults)


def test_every_kind_of_fault_can_be_done() -> None:
    assert INJECTORS.keys() == KINDS.keys()


def test_a_kind_that_never_had_its_effect_is_named() -> None:
    planned = stretches(1, 120)
    effective = dict.fromkeys(KINDS, 1)
    assert missing(effective, planned) == []
    assert missing({**effective, "stop": 0, "clock": 0}, planned) == ["stop"]
