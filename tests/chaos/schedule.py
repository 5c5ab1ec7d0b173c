"""What happens to whom, when and for how long. Pure: the same seed, the same soak."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

STRETCH_S: Final = 40.0
"""Of faults; a calm follows. Longer: what broke is found later."""
CALM_S: Final = 20.0
"""Counted for each calm; it ends when everything is well, or is broken."""
MEAN_S: Final = 1.2
"""Between the beginnings of two faults: two or three of them overlap."""
FIRST_S: Final = 1.0

EDGES: Final = (
    "dispatcher-postgres",
    "worker-postgres",
    "producer-postgres",
    "dispatcher-broker",
    "worker-broker",
    "worker-rail",
    "worker-receiver",
)
TO_POSTGRES: Final = EDGES[:3]
SAYING_COMMIT: Final = EDGES[1:3]
"""A dispatcher has its COMMIT prepared: the word is not in what it sends."""
DISPATCHERS: Final = ("dispatcher-1", "dispatcher-2")
MASTERS: Final = ("payments", "webhooks")
CHILDREN: Final = ("payments child", "webhooks child")


@dataclass(frozen=True)
class Kind:
    """`lasts`: seconds, from and to. `cards`: how often a deck has it. `looks`: it needs a server's
    answer. `must`: a soak in which it never had its effect proves nothing about it, and fails."""

    targets: tuple[str, ...]
    lasts: tuple[float, float] = (0.0, 0.0)
    cards: int = 1
    looks: bool = False
    must: bool = True


KINDS: Final[Mapping[str, Kind]] = {
    "kill": Kind((*DISPATCHERS, *MASTERS, *CHILDREN, "producer", "web"), cards=4),
    # Past the lease (3 s) and the next pass of a reaper (5 s).
    "stop": Kind((*DISPATCHERS, *CHILDREN, *CHILDREN), (8.5, 10.0), cards=2, looks=True),
    "term": Kind((*DISPATCHERS, *MASTERS, "web")),
    "cut": Kind(EDGES),
    "reset": Kind(EDGES),
    "delay": Kind(EDGES, (3.0, 6.0)),
    "throttle": Kind(EDGES, (3.0, 6.0)),
    "silence": Kind(EDGES, (3.0, 7.0)),
    "cut_before_commit": Kind(SAYING_COMMIT, (3.0, 3.0), cards=2),
    "cut_after_commit": Kind(TO_POSTGRES, (3.0, 3.0), cards=2),
    "lose_answer": Kind((*EDGES, *TO_POSTGRES), (3.0, 3.0), cards=2),
    "terminate": Kind(("sessions",), cards=2, looks=True),
    "cancel": Kind(("statements",), (2.0, 3.0), looks=True),
    "postgres_kill": Kind(("postgres",), (0.2, 1.5)),
    "postgres_stop": Kind(("postgres",), (4.0, 6.0)),
    "broker_flush": Kind(("broker",), looks=True),
    "broker_lose": Kind(("broker",), looks=True),
    "broker_copy": Kind(("broker",), looks=True),
    "broker_replay": Kind(("broker",), looks=True),
    "broker_poison": Kind(("broker",), looks=True),
    "broker_kill": Kind(("broker",), (0.2, 1.5)),
    "broker_full": Kind(("broker",), (2.0, 4.0), looks=True),
    "rail_500": Kind(("rail",), (2.0, 4.0), looks=True),
    "rail_silence": Kind(("rail",), (2.0, 4.0), looks=True),
    "rail_lost_answer": Kind(("rail",), (2.0, 4.0), looks=True),
    "receiver_500": Kind(("receiver",), (2.0, 4.0), looks=True),
    "receiver_silence": Kind(("receiver",), (2.0, 4.0), looks=True),
    "receiver_lost_answer": Kind(("receiver",), (2.0, 4.0), looks=True),
    # Needs a library that is not everywhere.
    "clock": Kind(("webhooks",), (6.0, 8.0), must=False),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """`at`: seconds from its stretch's beginning. `dice`: what the fault itself may choose by."""

    number: int
    at: float
    kind: str
    target: str
    seconds: float
    dice: int

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def stretches(seed: int, seconds: float) -> list[list[Fault]]:
    """The faults of each stretch, in their order. Kinds are dealt from a shuffled deck, again
    and again: none is missing from a soak that is longer than one deal takes."""
    chance = random.Random(f"chaos {seed}")
    dealt = _dealt(chance)
    numbers = iter(range(1, 1_000_000))
    count = max(1, round(seconds / (STRETCH_S + CALM_S)))
    return [list(_stretch(chance, dealt, numbers)) for _ in range(count)]


def _stretch(
    chance: random.Random, dealt: Iterator[str], numbers: Iterator[int]
) -> Iterator[Fault]:
    at = FIRST_S
    while at < STRETCH_S:
        kind = next(dealt)
        known = KINDS[kind]
        seconds = round(chance.uniform(*known.lasts), 1)
        # Not beyond the stretch: its calm waits for nobody's fault.
        yield Fault(
            number=next(numbers),
            at=round(min(at, STRETCH_S - seconds), 2),
            kind=kind,
            target=chance.choice(known.targets),
            seconds=seconds,
            dice=chance.randrange(2**31),
        )
        at += chance.expovariate(1 / MEAN_S)


def _dealt(chance: random.Random) -> Iterator[str]:
    while True:
        deck = [kind for kind, known in KINDS.items() for _ in range(known.cards)]
        chance.shuffle(deck)
        yield from deck


def missing(effective: Mapping[str, int], faults: Sequence[Sequence[Fault]]) -> list[str]:
    """The kinds that were to happen, must have an effect, and had none."""
    wanted = {fault.kind for stretch in faults for fault in stretch if KINDS[fault.kind].must}
    return sorted(kind for kind in wanted if not effective.get(kind))
