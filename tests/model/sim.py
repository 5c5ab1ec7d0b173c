"""`make sim ARGS="--steps 100000 --seed 7"`: the model for as long as wanted.

Programs are drawn from the seed, a chunk at a time, until so many steps were really run. It
ends with 1 on a violation, which is first made as small as it gets, and also when one of the
paths that must happen never did: then the run has proved nothing about it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.model.lab import drive, lab
from tests.model.machine import Installation

RULES: Final = 40
"""Rules of one program. Fewer seldom come far; more are slow to shrink."""

CHUNK: Final = 12
"""Programs from one seed. The number of a chunk that failed is all that a replay needs: with
other numbers of rules or programs the same seed would draw others, so the tests take these, too."""

MUST_HAPPEN: Final = (
    "duplicates_refused",
    "settles_lost",
    "settles_ambiguous",
    "leases_lost",
    "publish_failures",
    "reaped_claim_expired",
    "reaped_run_expired",
    "reaped_worker_gone",
    "exposure",
    "posts",
    "job_failures",
    "jobs_parked",
    "blocked on a lock",
    "cut before a commit",
    "cut after a commit",
    "cut before a settle",
    "cut after a settle",
    "killed: app",
    "killed: dispatcher",
    "killed: worker",
    "drained",
    "broker: lose",
    "broker: flush",
    "broker: forge",
    "broker: replay",
)
"""At least once in any run of this many steps or more:"""
ENOUGH: Final = 10_000


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="rules to run (20000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first chunk (1)")
    given = parser.parse_args(words)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder)) as machine:
        number = given.seed
        while machine.record["steps"] < given.steps:
            try:
                drive(machine, number, examples=CHUNK, steps=RULES, shrinks=True)
            except Exception:
                print(f"\nseed {number} fails: make sim ARGS='--steps 1 --seed {number}'")
                raise
            print(progress(machine, time.monotonic() - begun, number), flush=True)
            number += 1
        print(what_happened(machine.record))
        missing = never_happened(machine.record)
    if missing and given.steps >= ENOUGH:
        print(f"never happened, so nothing was proved about it: {', '.join(missing)}")
        return 1
    return 0


def progress(machine: type[Installation], seconds: float, number: int) -> str:
    record = machine.record
    return (
        f"seed {number}: {record['steps']} steps run, {record['statements']} statements,"
        f" {record['programs']} programs, {seconds:.0f} s"
    )


def what_happened(record: Counter[str]) -> str:
    """Every rule and every path, and how often."""
    return "\n".join(f"{record[name]:>9}  {name}" for name in sorted(record))


def never_happened(record: Counter[str]) -> list[str]:
    return [name for name in MUST_HAPPEN if not record[name]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
