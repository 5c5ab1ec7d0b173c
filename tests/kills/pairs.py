"""Two deaths in a row: of whoever works, then of whoever recovers. Which ones is a seed's choice.

A chain is the order in which one job is worked at; what a death on the way leaves is a lease
that somebody must take away. So whoever comes second passes the chain again, from the reaper
on, but for what the first one has done for good.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.kills.driver import Step
from tests.kills.places import Fault, InPostgres, Moment, Place, Post, Push, Question
from tests.kills.plays import Play
from tests.kills.world import World

WRITTEN, COMMITTING, COMMITTED = Moment.WRITTEN, Moment.COMMITTING, Moment.COMMITTED
GONE, UNSTARTED = "worker_gone", "claim_expired"


@dataclass(frozen=True)
class Station:
    """A place on a chain. `leaves`: how the reaper calls what a death there leaves. `lasts`: what
    came before it has been done for good, and is not passed again."""

    name: str
    place: Callable[[World, Play, Fault], Place]
    leaves: str
    lasts: bool = False
    of_the_job: bool = False
    """Passed again by whoever takes the job, whatever has been done for good."""


@dataclass(frozen=True)
class Pair:
    """Two deaths in the life of one job of `kind`."""

    seed: int
    kind: str
    first: Station
    second: Station

    def __str__(self) -> str:
        return f"{self.seed}-{self.first.name}-{self.second.name}"

    def steps(self) -> list[Step]:
        return [
            Step(one.place, Fault.KILL, self.kind if one.leaves == UNSTARTED else "")
            for one in (self.first, self.second)
        ]

    def reaped(self) -> list[str]:
        """Why the job was taken away from whom died."""
        return [one.leaves for one in (self.first, self.second) if one.leaves]


def at(name: str, kind: str, word: str, moment: Moment, leaves: str) -> Station:
    of_the_job = word in {"claim", "start", "end"}
    return Station(
        f"{name}_{moment.value}",
        partial(InPostgres, kind=kind, word=word, moment=moment),
        leaves,
        lasts=moment is COMMITTED and not of_the_job,
        of_the_job=of_the_job,
    )


def reaps(kind: str, why: str) -> list[Station]:
    """By the dispatcher: nothing is left of the reap, or all of it."""
    return [at("reap", kind, why, moment, "") for moment in (WRITTEN, COMMITTED)]


def hand_out(kind: str) -> list[Station]:
    """From the dispatcher to the worker."""
    return [
        at("claim", kind, "claim", WRITTEN, ""),
        at("claim", kind, "claim", COMMITTED, UNSTARTED),
        at("start", kind, "start", WRITTEN, UNSTARTED),
        at("start", kind, "start", COMMITTED, GONE),
    ]


CHAINS: Final = {
    "poll_charge": [
        *hand_out("poll_charge"),
        Station("publish", Push, UNSTARTED, of_the_job=True),
        Station("the_rail_is_asked", Question, GONE),
        at("settlement", "charges", "settled", WRITTEN, GONE),
        at("event", "events", "written", WRITTEN, GONE),
        at("event", "events", "written", COMMITTING, GONE),
    ],
    "fan_out_events": [
        at("flip", "events", "flipped", WRITTEN, GONE),
        at("fan_out", "webhook_deliveries", "written", COMMITTING, GONE),
        at("fan_out", "webhook_deliveries", "written", COMMITTED, GONE),
    ],
    "deliver_webhook": [
        *hand_out("deliver_webhook"),
        at("stamp", "webhook_deliveries", "stamped", WRITTEN, GONE),
        at("stamp", "webhook_deliveries", "stamped", COMMITTED, GONE),
        Station("post", Post, GONE),
        at("record", "webhook_deliveries", "recorded", WRITTEN, GONE),
        at("record", "webhook_deliveries", "recorded", COMMITTED, GONE),
        at("settle", "deliver_webhook", "end", WRITTEN, GONE),
    ],
}


def pair(seed: int) -> Pair:
    """The same one for a seed at any time."""
    dice = random.Random(seed)
    kind = dice.choice(sorted(CHAINS))
    chain = CHAINS[kind]
    first = dice.choice([one for one in chain if one.leaves])
    return Pair(seed, kind, first, dice.choice([*reaps(kind, first.leaves), *_left(chain, first)]))


def _left(chain: list[Station], died_at: Station) -> list[Station]:
    """Where the next one passes."""
    come = chain[: chain.index(died_at) + 1]
    done = next((n for n in range(len(come), 0, -1) if come[n - 1].lasts), 0)
    return [one for n, one in enumerate(chain) if n >= done or one.of_the_job]
