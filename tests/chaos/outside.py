"""Faults of those whom we call: the rail, the receivers. They do their work and say otherwise."""

from __future__ import annotations

from typing import Final

from tests.chaos.effects import Effect, Injector, Scene
from tests.chaos.schedule import Fault
from vpay_sandbox.control import AnswerKind, Control


def _scripted(
    scene: Scene, fault: Fault, answer: AnswerKind, status: int | None, *, after: bool
) -> Effect:
    """`after`: the work is done first, and only then the answer is this one. What the rail's own
    scenarios answer so, and what another fault does, is no effect of this one."""
    control: Control = getattr(scene.town, fault.target)
    script = control.script("*", status=status or 200, answer=answer, times=None, after=after)
    try:
        scene.last(fault.seconds)
    finally:
        met = control.forget_scripts(script)
    words = f"answered {status}" if status else "not answered"
    return Effect(met > 0, f"{met} requests were {words}{', and obeyed' if after else ''}")


def error(scene: Scene, fault: Fault) -> Effect:
    # A receiver reads what it then refuses: its journal has to tell one body from another.
    return _scripted(scene, fault, "reply", 503, after=fault.target == "receiver")


def silent(scene: Scene, fault: Fault) -> Effect:
    return _scripted(scene, fault, "silence", None, after=fault.target == "receiver")


def lost_answer(scene: Scene, fault: Fault) -> Effect:
    return _scripted(scene, fault, "hangup", None, after=True)


INJECTORS: Final[dict[str, Injector]] = {
    f"{whose}_{what}": injector
    for whose in ("rail", "receiver")
    for what, injector in (("500", error), ("silence", silent), ("lost_answer", lost_answer))
}
