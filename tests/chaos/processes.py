"""Faults of processes: killed, stopped past their lease, told to end, given a wrong clock."""

from __future__ import annotations

import json
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests import faketime
from tests.chaos.effects import Effect, Injector, Scene
from tests.chaos.kept import gone, send, state
from tests.chaos.schedule import Fault
from vpay_sandbox.process import SandboxError

THERE_S: Final = 3.0
"""For a target that another fault has just ended, or that has nothing in hand yet."""
END_S: Final = 15.0
"""The settings' grace, and then some."""
BOOT_S: Final = 30.0

HELD: Final = """
SELECT j.id, j.lease::text
FROM vpay.jobs AS j
JOIN vpay.workers AS w ON w.id = j.locked_by
WHERE w.pid = %s AND j.started_at IS NOT NULL
"""
STILL: Final = "SELECT count(*) FROM vpay.jobs WHERE id = %s AND lease::text = %s"


def kill(scene: Scene, fault: Fault) -> Effect:
    pid = _pid(scene, fault)
    send(pid, signal.SIGKILL)
    return Effect(scene.until(lambda: gone(pid), THERE_S), f"process {pid} is gone")


def term(scene: Scene, fault: Fault) -> Effect:
    kept = scene.town.kept[fault.target]
    pid, before = _pid(scene, fault), len(kept.ends)
    send(pid, signal.SIGTERM)
    ended = scene.until(lambda: len(kept.ends) > before, END_S)
    code = kept.ends[before] if ended else None
    # Told to end, it ends by itself, and not by another fault's kill. A web server ends by the
    # signal that it was sent, once it has closed what it served.
    return Effect(code in {0, 1, 69, 128 + signal.SIGTERM}, f"process {pid} ended with {code}")


def stop(scene: Scene, fault: Fault) -> Effect:
    """A worker is stopped while it runs something, for longer than its lease and a reaper's
    pass: when it goes on, its rows are another's."""
    pid = _pid(scene, fault)
    works = fault.target.endswith("child")
    held: list[tuple[Any, ...]] = []
    if works:
        scene.until(lambda: _held(scene, pid), THERE_S)
    scene.town.stopped.add(pid)
    try:
        send(pid, signal.SIGSTOP)
        if works:
            held = _held(scene, pid)
        scene.until(lambda: state(pid) == "T", 1.0)
        scene.last(fault.seconds)
        stood = state(pid) == "T"
        with scene.town.servers:  # it may be coming back just now
            taken = sum(not _still(scene, *lease) for lease in held) if stood else 0
    finally:
        scene.town.stopped.discard(pid)
        if not gone(pid):
            send(pid, signal.SIGCONT)
    if not stood:
        return Effect(False, f"process {pid} did not stay stopped: {state(pid) or 'gone'}")
    if not works:
        return Effect(True, f"process {pid} stood still for {fault.seconds} s")
    return Effect(taken > 0, f"{taken} of {len(held)} leases of process {pid} were taken from it")


def _held(scene: Scene, pid: int) -> list[tuple[Any, ...]]:
    with scene.town.database() as connection:
        return connection.execute(HELD.encode(), (pid,)).fetchall()


def _still(scene: Scene, job: int, lease: str) -> bool:
    with scene.town.database() as connection:
        row = connection.execute(STILL.encode(), (job, lease)).fetchone()
    return bool(row and row[0])


def clock(scene: Scene, fault: Fault) -> Effect:
    """A group of workers lives an hour ahead, or behind."""
    if faketime.LIBRARY is None:
        return Effect(False, "libfaketime is not here")
    hours = scene.dice(fault).choice((-1, 1))
    log = scene.town.artefacts / f"{fault.target}.log"
    begun = log.stat().st_size
    scene.town.set_clock(hours)
    try:
        wrong = scene.until(lambda: written_by_a_clock(log, begun, hours), BOOT_S)
        scene.last(fault.seconds)
    finally:
        scene.town.set_clock(0)
    return Effect(wrong, f"a worker's clock was {hours:+d} h")


def written_by_a_clock(log: Path, begun: int, hours: int) -> bool:
    """Whether a line behind `begun` was written by a clock so far off."""
    for line in log.read_bytes()[begun:].splitlines():
        try:
            at = datetime.fromisoformat(json.loads(line)["at"]).timestamp()
        except (ValueError, KeyError, TypeError):
            continue
        if abs(at - time.time() - hours * 3_600) < 600:
            return True
    return False


def _pid(scene: Scene, fault: Fault) -> int:
    found: list[int] = []

    def there() -> bool:
        pid = scene.town.pid(fault.target)
        found[:] = [pid] if pid is not None else []
        return bool(found)

    if not scene.until(there, THERE_S):
        raise SandboxError(f"{fault.target} is not there")
    return found[0]


INJECTORS: Final[dict[str, Injector]] = {"kill": kill, "term": term, "stop": stop, "clock": clock}
