"""One case: reach the place, prove it, do the harm, let it heal, and look at everything.

What is declared of a case is its way back, too: which reaper freed the row, whether a settle
was lost, a commit read again, a message refused. An end that is right by luck is none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Final

from tests.invariants import check
from tests.kills.places import Caught, Fault, Place
from tests.kills.plays import Payment, Play, Vendor
from tests.kills.terms import ONCE
from tests.kills.world import ENDPOINTS, RUN_LEASE_S, RUNGS, Member, World
from vpay_sandbox import journal

NUDGE_S: Final = 0.2
SHORT_S: Final = 2.0
"""What a confirm that is to outlive its deadline has for everything."""

OTHERS: Final = {"provider_requests": "begun answered"}
"""What becomes of a request's or a job's neighbours, where it isn't ONCE."""


@dataclass(frozen=True)
class Way:
    """How a case heals.

    `rows`: by kind, what must have become of one of the rows, a regular expression over the
    trail's words; the others of its kind must have gone well. `seen`: what somebody must have
    said (an action, or the beginning of a message), counted (`+counter`), or been told as a
    vendor (`told 503`); with a `!` what must not have been. `posts`, `submits`: requests that
    receivers and rail have had in the end. `expires`: the kind whose lease must end first; time
    is moved for it. `outlives`: a stopped process must wake when its own clock, too, says that
    its lease is over.
    """

    rows: Mapping[str, str] = field(default_factory=dict)
    seen: tuple[str, ...] = ()
    posts: int | None = 2
    submits: int = 1
    expires: str = ""
    outlives: bool = False


@dataclass(frozen=True)
class Point:
    """One line of the matrix. `place` makes the trap; `play` is what runs into it."""

    name: str
    play: Callable[[World, str], Play]
    place: Callable[[World, Play, Fault], Place]
    ways: Mapping[Fault, Way]
    behind: Point | None = None
    """What must have been killed before anybody comes here."""


@dataclass
class Seen:
    """What was there before a case, so that the case's own can be told from it."""

    lines: dict[Member, int]
    counters: dict[str, int]


@dataclass(frozen=True)
class Step:
    """One fault at one place."""

    place: Callable[[World, Play, Fault], Place]
    fault: Fault
    expires: str = ""
    outlives: bool = False


def steps_of(point: Point, fault: Fault) -> list[Step]:
    """What is done to come to a point and harm whoever is there."""
    before = steps_of(point.behind, Fault.KILL) if point.behind else []
    way = point.ways[fault]
    return [*before, Step(point.place, fault, way.expires, way.outlives)]


class Case:
    """One play, and the harm that is done to it, step by step."""

    def __init__(self, world: World, play: Play) -> None:
        self.world = world
        self.play = play
        world.at_strength(web=2 if isinstance(play, Vendor) else 0)
        self._before = Seen({m: len(m.process.lines()) for m in world.members}, self._counters())

    def run(self, steps: Sequence[Step], way: Way) -> None:
        """Raises AssertionError for whatever was not as declared."""
        try:
            self._through(steps)
            self._heal(harmless={Fault.CUT, Fault.ERROR} >= {step.fault for step in steps})
            self._judge(way)
        except AssertionError as error:
            error.add_note(self.story())
            raise

    def _through(self, steps: Sequence[Step]) -> None:
        if isinstance(self.play, Payment) and steps[0].fault is Fault.STOP:
            self.play.deadline = SHORT_S
        place: Place | None = steps[0].place(self.world, self.play, steps[0].fault)
        self.play.begin()
        for step, following in zip_longest(steps, steps[1:]):
            assert place is not None
            caught = self._meet(place, step)
            # Armed while one stands at the last place: who recovers may be quicker than we are.
            behind = following.place(self.world, self.play, following.fault) if following else None
            self._harm(place, caught, step)
            place = behind

    def _meet(self, place: Place, step: Step) -> Caught:
        """Wait until somebody stands there, and prove it."""
        caught = self.world.until(place.reached)
        assert caught is not None
        if step.fault is not Fault.ERROR:
            assert place.still(), "gone before anything was done to it"
        return caught

    def _harm(self, place: Place, caught: Caught, step: Step) -> None:
        match step.fault:
            case Fault.KILL:
                caught.member.kill()
                place.bury()
                self.world.keep_leases(caught.member)
                place.go()
                self.world.replace(caught.member)
            case Fault.STOP:
                self._stop(place, caught, step)
            case Fault.CUT:
                place.cut()
                place.go()
            case Fault.ERROR:
                place.go()
        if step.expires and step.fault is not Fault.STOP:
            self._expire(step, caught.member)

    def _expire(self, step: Step, member: Member) -> None:
        about = self.play.subject(step.expires)
        self.world.until(lambda: self.world.expire(step.expires, about, member))

    def _stop(self, place: Place, caught: Caught, step: Step) -> None:
        """Until the others have done its work, or wait for what it holds."""
        world, member = self.world, caught.member
        begun = time.monotonic()
        member.stop()
        world.until(member.stands_still)
        if not place.late:
            place.go()
        if step.expires:
            self._expire(step, member)
        # What no database can move for it: its own clock.
        patience = RUN_LEASE_S if step.outlives else 0.0
        if member.role == "application":
            patience = SHORT_S
        world.until(lambda: time.monotonic() > begun + patience)
        world.until(lambda: self._overtaken(caught, step))
        if place.late:
            place.go()
        member.go_on()

    def _overtaken(self, caught: Caught, step: Step) -> bool:
        if step.expires:
            self.world.expire_unstarted(self.play.subject(step.expires))
            if "expired" not in " ".join(self.play.words(step.expires)):
                return False
        if caught.backend is not None and self.world.waits_for(caught.backend):
            return True
        if self.play.waits_for_one(caught.member):
            return True
        self.play.nudge()
        return self.play.over()

    def _heal(self, *, harmless: bool) -> None:
        """Until it is over, time passing. `harmless`: nobody can have kept a message."""
        last = 0.0

        def over() -> bool:
            nonlocal last
            if time.monotonic() > last + NUDGE_S:
                last = time.monotonic()
                self.play.nudge()
                if not harmless:
                    self.world.expire_unstarted(self.play.about)
            return self.play.over()

        self.world.until(over)

    # The verdict.

    def _judge(self, way: Way) -> None:
        play = self.play
        play.check()
        for kind, pattern in way.rows.items():
            self.world.until(partial(self._rows_are, kind, pattern))
        for what in sorted(way.seen, key=lambda what: what.startswith("!")):
            if what.startswith("!"):
                assert not self._is_seen(what[1:]), what
            else:
                self.world.until(partial(self._is_seen, what))
        if isinstance(play, Payment):
            assert way.posts in {len(play.posts()), None}, "posts"
            assert play.submits() == way.submits, "submits"
        self._whole()

    def _whole(self) -> None:
        """Nobody left anything, and every promise holds, of this case and all before it."""
        world = self.world

        def clean() -> bool:
            assert world.leaks() == []
            return True

        world.until(clean)
        found = check(
            world.keeper,
            rail=journal.read(world.folder / "rail.jsonl"),
            receivers=journal.read(world.folder / "receiver.jsonl"),
            vendors=world.vendors,
            grants={("stripe", "", event): n for event, n in world.ask(EFFECTS)},
            endpoints=[(one, name) for one, names in ENDPOINTS.items() for name in names],
            rungs=RUNGS,
        )
        assert not any(found.values()), {name: told for name, told in found.items() if told}

    def _rows_are(self, kind: str, pattern: str) -> bool:
        rows = self.play.words(kind)
        if self.play.is_shared(kind):
            assert any(re.search(rf"\b{pattern}\b", row) for row in rows), (kind, rows)
            return True
        chosen = next((row for row in rows if re.fullmatch(pattern, row)), None)
        assert chosen is not None, (kind, rows)
        others = [row for row in rows if row is not chosen]
        also = OTHERS.get(kind, ONCE)
        assert all(re.fullmatch(f"{also}|{pattern}", row) for row in others), (kind, rows)
        return True

    def _is_seen(self, what: str) -> bool:
        if what.startswith("told "):
            assert isinstance(self.play, Vendor)
            return what.removeprefix("told ") in map(str, self.play.told)
        if what.startswith("+"):
            counter = what[1:]
            return self._counters().get(counter, 0) > self._before.counters.get(counter, 0)
        return any(
            line.get("action") == what or str(line.get("message", "")).startswith(what)
            for member in self.world.members
            for line in member.process.lines()[self._before.lines.get(member, 0) :]
        )

    def story(self) -> str:
        """For whoever reads a failure: what became of every row, and what everybody said."""
        rows = self.world.ask(
            "SELECT seq, kind, about, word, row_id, application FROM kills.trail"
            " WHERE seq > %s ORDER BY seq",
            self.play.since,
        )
        lines = [" ".join(str(value) for value in row) for row in rows]
        for member in self.world.members:
            lines.append(f"{member.role} {member.process.log.name} {member.name}")
            new = member.process.lines()[self._before.lines.get(member, 0) :]
            lines += [f"    {line}" for line in new]
        return "\n".join(lines)

    def _counters(self) -> dict[str, int]:
        return dict(self.world.ask(COUNTERS))


COUNTERS: Final = (
    "SELECT key, sum(value::bigint)::bigint FROM vpay.workers,"
    " jsonb_each_text(stats -> 'counters') GROUP BY key"
)
EFFECTS: Final = "SELECT event_id, count(*)::integer FROM public.effects GROUP BY event_id"
