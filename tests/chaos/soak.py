"""One soak: stretches of faults, a calm behind each, a drain, and every promise asked."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import psycopg
import redis

from tests.chaos import artefacts, canaries, on_wires, outside, processes, rest, schedule, servers
from tests.chaos.effects import Effect, Injector, Scene
from tests.chaos.sampler import Sampler
from tests.chaos.schedule import Fault
from tests.chaos.town import BOOT_S, Town
from tests.invariants import NAMES, Overdue, check
from tests.invariants.journals import exposure
from vpay_sandbox.journal import Journal
from vpay_sandbox.process import SandboxError
from vpay_tasks.errors import VpayError

INJECTORS: Final[dict[str, Injector]] = {
    **processes.INJECTORS,
    **on_wires.INJECTORS,
    **servers.INJECTORS,
    **outside.INJECTORS,
}
AT_ONCE: Final = 8
"""Faults that overlap; those that last wait for each other beyond that."""
TRIES: Final = 3
AGAIN_S: Final = 0.7
"""Behind a fault that had no effect. Shorter: its target is still away."""
MET: Final = (
    *(SandboxError, VpayError, psycopg.Error, redis.RedisError),
    *(OSError, http.client.HTTPException),
)
"""What a fault meets when another one came first: its target is away."""
RUN_LEASE_S: Final = 3.0
"""As chaos.toml has it: how long a row may stay with a process that a fault took."""
CALM_FROM_S: Final = 3.0
"""A calm lasts at least so long: the pulse, the reapers and the timers have been round."""
SESSIONS_END_S: Final = 15.0
DRAIN_S: Final = 150.0
"""Horizon, late successes (22 s), the ladders, and a slow machine."""

Violations = dict[str, list[str]]


@dataclass
class Result:
    """What a soak found; `as_json` is its last line."""

    seed: int
    seconds: float
    folder: Path
    faults: dict[str, dict[str, int]]
    figures: dict[str, Any]
    violations: Violations
    broken_after: float | None = None
    """Seconds until the first violation was seen."""
    unproved: Sequence[str] = ()
    """Kinds of faults that were to happen and never had their effect."""

    @property
    def broken(self) -> bool:
        return any(self.violations.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": round(self.seconds),
            "faults": self.faults,
            **{key: self.figures[key] for key in ("charges", "events", "deliveries")},
            "violations": {name: len(self.violations[name]) for name in NAMES},
            **{key: self.figures[key] for key in ("max_stuck_s", "exposure_per_10k")},
            **{key: self.figures[key] for key in ("lost", "ambiguous", "duplicates_refused")},
        }


@dataclass
class Soak:
    """`run()` plays it, in `folder`."""

    seconds: float
    seed: int
    folder: Path
    per_second: float = 6.0
    pulse: str = "lock"
    _injected: Counter[str] = field(default_factory=Counter)
    _effective: Counter[str] = field(default_factory=Counter)
    _violations: Violations = field(default_factory=lambda: {name: [] for name in NAMES})
    _begun: float = field(default_factory=time.monotonic)
    _broken_after: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _recoveries: list[float] = field(default_factory=list)

    def run(self) -> Result:
        planned = schedule.stretches(self.seed, self.seconds)
        self._say(f"seed {self.seed}: {sum(map(len, planned))} faults in {len(planned)} stretches")
        self._log = Journal(self.folder / "faults.jsonl")
        with Town(self.folder, self.seed, self.per_second, self.pulse) as town:
            sampler = Sampler(town)
            sampler.start()
            self._scene = Scene(town, sampler, threading.Event())
            self._say(f"everything runs; logs: {self.folder}")
            try:
                self._play(planned)
                figures = self._figures()
            finally:
                sampler.stop()
        self._log.close()
        faults = {
            kind: {"injected": self._injected[kind], "effective": self._effective[kind]}
            for kind in sorted(self._injected)
        }
        return Result(
            self.seed,
            time.monotonic() - self._begun,
            self.folder,
            faults,
            figures,
            self._violations,
            self._broken_after,
            schedule.missing(self._effective, planned),
        )

    def _play(self, planned: list[list[Fault]]) -> None:
        town = self._scene.town
        for number, faults in enumerate(planned, 1):
            town.resume_producing()
            self._stretch(number, faults)
            if number == len(planned):
                town.heal()  # nothing has an effect on who is still being started
                self._scene.until(town.is_up, BOOT_S)
                self._make_up(planned)
            town.pause_producing()
            self._calm()
            (town.artefacts / "command-lines.txt").write_text(town.command_lines(), "utf-8")
            if any(self._violations.values()):
                break
        self._drain()

    # Faults.

    def _stretch(self, number: int, faults: list[Fault]) -> None:
        self._say(f"stretch {number}: {len(faults)} faults")
        begun = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fault") as pool:
            doing = []
            for fault in faults:
                self._scene.last(max(0.0, begun + fault.at - time.monotonic()))
                doing.append(pool.submit(self._inject, fault))
            self._scene.last(max(0.0, begun + schedule.STRETCH_S - time.monotonic()))
            for one in doing:
                one.result()

    def _inject(self, fault: Fault) -> None:
        """A fault that came too late for its target – another one was first – is tried again."""
        for _ in range(TRIES):
            effect = self._try(fault)
            if effect.effective or self._scene.over.wait(AGAIN_S):
                return

    def _try(self, fault: Fault) -> Effect:
        begun = time.monotonic()
        try:
            self._approach(fault)
            effect = INJECTORS[fault.kind](self._scene, fault)
        except MET as error:
            effect = Effect(False, f"{type(error).__name__}: {error}".splitlines()[0])
        took = time.monotonic() - begun
        with self._lock:
            self._injected[fault.kind] += 1
            self._effective[fault.kind] += effect.effective
        fields = {**fault.fields(), "took": round(took, 2)}
        fields["type"] = fields.pop("kind")
        self._log.write("fault", **fields, effective=effect.effective, seen=effect.seen)
        mark = "+" if effect.effective else "-"
        self._say(f"  {mark} {fault.kind:<20} {fault.target:<20} {took:5.1f} s  {effect.seen}")
        return effect

    def _approach(self, fault: Fault) -> None:
        """What looks into a server waits until that is up; and somebody must call a receiver
        before it can refuse: a circuit that an earlier fault has opened stays open for minutes."""
        if schedule.KINDS[fault.kind].looks:
            with self._scene.town.servers:
                pass
        if "receiver" in fault.target:
            with self._scene.town.servers:
                rest.resume_lanes(self._scene.town)

    def _make_up(self, planned: list[list[Fault]]) -> None:
        """A kind that never had its effect, since another fault always came first, has it now,
        alone: a soak without it would prove nothing about it."""
        every = [fault for stretch in planned for fault in stretch]
        for kind in schedule.missing(self._effective, planned):
            self._say(f"to make up for: {kind}")
            self._scene.town.heal()
            # What was begun anew for another fault must be there to meet this one.
            self._scene.until(self._scene.town.is_up, BOOT_S)
            fault = next(fault for fault in every if fault.kind == kind)
            for target in (fault.target, *schedule.KINDS[kind].targets) * TRIES:
                if self._try(replace(fault, target=target)).effective:
                    break

    # Calm.

    def _calm(self) -> None:
        """All faults end, every part is up again, and whatever was stuck by then is taken up within
        the bound: the end of its lease, a reaper's pass, a claim, and the margin of each (see
        Bounds), stretched by how late this machine itself is. While one after the other is, they
        are a queue that is worked off, as fast as this machine can; the bound is of the rest."""
        scene = self._scene
        scene.town.heal()
        if not scene.until(scene.town.is_up, BOOT_S):
            self._found({"I7": [f"not every part came back within {BOOT_S:.0f} s"]})
        scene.sampler.fresh()
        up = moved = time.monotonic()
        looks, before = scene.sampler.looks, set[int]()

        def since() -> float:
            return time.monotonic() - up

        def limit() -> float:
            bounds = scene.sampler.bounds()
            return RUN_LEASE_S + bounds.leased + bounds.due

        def stuck() -> list[Overdue]:
            return [one for one in scene.sampler.late if one.seconds > since() - 1.0]

        def decided() -> bool:
            nonlocal moved, before
            rest.resume_lanes(scene.town)
            now = {one.job_id for one in stuck()}
            if before - now:
                moved = time.monotonic()
            before = now
            if since() < CALM_FROM_S or scene.sampler.looks == looks:
                return False
            return not now or time.monotonic() - moved > limit()

        scene.until(decided, float("inf"))
        took = since()
        left = [one for one in stuck() if one.job_id in before]
        if not left:
            self._recoveries.append(took)
        for one in left:
            about = f"job {one.job_id} ({one.kind}) is {one.what}"
            self._found({"I7": [f"{about}, {took:.0f} s after everything was up again"]})
        self._say(f"calm after {took:.1f} s (at most {limit():.0f} s)")
        self._judge()

    def _judge(self) -> None:
        """What moves while it is looked at may seem torn between a journal and the database, and
        only once: what is broken is still broken at the second look."""
        first = self._checked()
        if any(first.values()):
            second = self._checked()
            self._found({name: [s for s in second[name] if s in first[name]] for name in NAMES})

    def _checked(self, **more: Any) -> Violations:
        evidence = self._scene.town.evidence()
        with self._scene.town.database("soak check") as connection:
            return check(connection, **evidence, **more)

    def _found(self, found: Violations) -> None:
        for name, sentences in found.items():
            new = [one for one in sentences if one not in self._violations[name]]
            self._violations[name] += new
            for sentence in new[:5]:
                self._say(f"VIOLATED {name}: {sentence}")
        if self._broken_after is None and any(self._violations.values()):
            self._broken_after = time.monotonic() - self._begun

    # The end.

    def _drain(self) -> None:
        """Until nothing is under way, or the time is over: then it is told what waits."""
        scene, begun = self._scene, time.monotonic()
        left: list[str] = []

        def rested() -> bool:
            left[:] = rest.under_way(scene.town)
            return not left

        word = "at rest" if scene.until(rested, DRAIN_S) else "NOT at rest"
        self._found({"I1": left})
        self._say(f"{word} after {time.monotonic() - begun:.1f} s")
        scene.town.end_programs()
        # A session ends when its backend has noticed, a moment behind its process.
        scene.until(lambda: not rest.sessions(scene.town), SESSIONS_END_S)
        artefacts.gather(scene.town)
        self._found(
            self._checked(
                at_rest=True,
                ended=True,
                canaries=canaries.CANARIES,
                artefacts=scene.town.artefacts,
            )
        )
        self._found({"I10": rest.moved_unseen(scene.town)})

    def _figures(self) -> dict[str, Any]:
        town, sampler = self._scene.town, self._scene.sampler
        with town.database() as connection:
            row = connection.execute(
                "SELECT (SELECT count(*) FROM vpay.charges), (SELECT count(*) FROM vpay.events),"
                " (SELECT count(*) FROM vpay.webhook_deliveries)"
            ).fetchone()
        charges, events, deliveries = row or (0, 0, 0)
        beyond = exposure(town.journal("rail"))
        return {
            "charges": charges,
            "events": events,
            "deliveries": deliveries,
            "max_stuck_s": round(sampler.stuck, 1),
            "stuck": sampler.at_stuck,
            "late_s": round(sampler.worst, 1),
            "late": sampler.at_worst,
            "recovered_within_s": round(max(self._recoveries, default=0.0), 1),
            "exposure_per_10k": round(10_000 * beyond / max(charges, 1), 1),
            "lost": sampler.total("settles_lost"),
            "ambiguous": sampler.total("settles_ambiguous"),
            "duplicates_refused": sampler.total("duplicates_refused"),
            "restarts": sum(max(one.starts - 1, 0) for one in town.kept.values()),
        }

    def _say(self, what: str) -> None:
        # One write: faults tell of themselves from threads of their own.
        sys.stderr.write(f"{time.monotonic() - self._begun:7.1f}  {what}\n")
