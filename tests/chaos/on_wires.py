"""Faults of the network: every edge has a proxy of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from tests.chaos.effects import Effect, Injector, Scene
from tests.chaos.schedule import Fault
from tests.e2e.proxy import Proxy

DELAYS_S: Final = (0.05, 0.1, 0.2)
BYTES_PER_S: Final = (5_000, 20_000, 80_000)


def cut(scene: Scene, fault: Fault) -> Effect:
    ended = scene.town.wires[fault.target].cut()
    return Effect(ended > 0, f"{ended} ends of connections were shut")


def reset(scene: Scene, fault: Fault) -> Effect:
    wire = scene.town.wires[fault.target]
    ended = wire.reset()
    scene.last(0.2)
    wire.end_resetting()
    return Effect(ended > 0, f"{ended} ends of connections were reset")


def delay(scene: Scene, fault: Fault) -> Effect:
    wire, pause = scene.town.wires[fault.target], scene.dice(fault).choice(DELAYS_S)
    before, wire.delay_s = wire.pieces, pause
    scene.last(fault.seconds)
    wire.delay_s = 0.0
    late = wire.pieces - before
    return Effect(late > 0, f"{late} pieces came {pause} s late")


def throttle(scene: Scene, fault: Fault) -> Effect:
    wire, speed = scene.town.wires[fault.target], scene.dice(fault).choice(BYTES_PER_S)
    before, wire.bytes_per_s = wire.pieces, float(speed)
    scene.last(fault.seconds)
    wire.bytes_per_s = 0.0
    late = wire.pieces - before
    return Effect(late > 0, f"{late} pieces crept by at {speed} bytes/s")


def silence(scene: Scene, fault: Fault) -> Effect:
    wire = scene.town.wires[fault.target]
    before = wire.pieces
    wire.fall_silent()
    scene.last(fault.seconds)
    lost = wire.pieces - before
    ended = wire.speak_again()
    return Effect(lost > 0, f"{lost} pieces were lost, {ended} ends shut behind the silence")


def cut_before_commit(scene: Scene, fault: Fault) -> Effect:
    return _armed(scene, fault, Proxy.swallow_commit, "a COMMIT never arrived")


def cut_after_commit(scene: Scene, fault: Fault) -> Effect:
    return _armed(scene, fault, Proxy.cut_after_commit, "a COMMIT's answer was lost")


def lose_answer(scene: Scene, fault: Fault) -> Effect:
    skip = scene.dice(fault).randrange(4)
    return _armed(scene, fault, lambda wire: wire.cut_on_answer(skip=skip), "an answer was lost")


def _armed(
    scene: Scene, fault: Fault, arm: Callable[[Proxy], threading.Event], seen: str
) -> Effect:
    wire = scene.town.wires[fault.target]
    cut = arm(wire)
    sprung = scene.until(cut.is_set, fault.seconds)
    wire.disarm(cut)
    return Effect(sprung, seen if sprung else "nothing passed")


INJECTORS: Final[dict[str, Injector]] = {
    "cut": cut,
    "reset": reset,
    "delay": delay,
    "throttle": throttle,
    "silence": silence,
    "cut_before_commit": cut_before_commit,
    "cut_after_commit": cut_after_commit,
    "lose_answer": lose_answer,
}
