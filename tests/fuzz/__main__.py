"""`make fuzz ARGS="--seconds 300 --seed 1"`: every parser, round after round, each round of its
own seed. A finding ends it with exit 1 and says how to meet it again."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter

from tests.fuzz.targets import TARGETS, attack, seeds

CASES = 400
"""Of each target in a round. Part of how a seed is met again: another number, another draw."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, help="end after so many, not by the time")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    asked = parser.parse_args()
    names = asked.target or sorted(TARGETS)
    begun, ran, findings = time.monotonic(), Counter[str](), []
    for number, seed in enumerate(seeds(asked.seed)):
        late = time.monotonic() - begun >= asked.seconds
        if number >= asked.rounds if asked.rounds is not None else late:
            break
        for name in names:
            try:
                ran[name] += attack(name, cases=CASES, seed=seed)
            except Exception:  # noqa: BLE001 - a finding is any
                findings.append(name)
                traceback.print_exc()
                again = f"--rounds 1 --seed {seed} --target {name}"
                print(f'again: make fuzz ARGS="{again}"', file=sys.stderr)
        if findings:
            break
    seconds = round(time.monotonic() - begun, 1)
    told = {"seed": asked.seed, "seconds": seconds, "cases": sum(ran.values())}
    print(json.dumps({**told, "by_target": dict(sorted(ran.items())), "findings": findings}))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
