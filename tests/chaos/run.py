"""`make chaos`: a soak from one seed. The last line on stdout is JSON; exit status 1 on any
violation, whose sentences stand above it, and when a kind of fault never had its effect, of
which the soak has proved nothing. 2: it failed itself, and says nothing about the promises.

python -m tests.chaos.run --seconds 360 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import schedule
from tests.chaos.soak import Result, Soak
from tests.mutants.run import HERE as MUTANTS
from tests.mutants.run import LEFT_OUT, ROOT
from vpay_sandbox.stopping import Stopped, stoppable

PREFIX = "vpay-chaos-"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=360.0, help="of faults and calms")
    parser.add_argument("--seed", type=int, default=1, help="decides all that happens")
    parser.add_argument("--per-second", type=float, default=6.0, help="payments begun")
    parser.add_argument("--pulse", choices=("lock", "lease"), default="lock", help="the setting")
    parser.add_argument("--keep", action="store_true", help="the folder, however it ends")
    parser.add_argument("--mutant", help="a guard is taken out first: tests/mutants/NAME.patch")
    parser.add_argument("--plan", action="store_true", help="only print what would happen")
    args = parser.parse_args()
    if args.plan:
        for faults in schedule.stretches(args.seed, args.seconds):
            for fault in faults:
                print(json.dumps(fault.fields()))
        return 0
    if args.mutant:
        with mutated(args.mutant) as tree:
            words = [f"--seconds={args.seconds}", f"--seed={args.seed}", f"--pulse={args.pulse}"]
            words += [f"--per-second={args.per_second}", *(["--keep"] if args.keep else [])]
            return subprocess.run(
                [sys.executable, "-m", "tests.chaos.run", *words],
                cwd=tree,
                env={**os.environ, "PYTHONPATH": str(tree)},
                check=False,
            ).returncode
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o755)  # Postgres runs as another user
    try:
        with stoppable():
            result = Soak(args.seconds, args.seed, folder, args.per_second, args.pulse).run()
    except Exception:  # noqa: BLE001 - whatever it is, it must not pass for a violation
        traceback.print_exc()
        print(f"the soak itself failed; logs: {folder}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(f"stopped; logs and journals: {folder}", file=sys.stderr)
        return stopped.exit
    tell(result)
    failed = result.broken or bool(result.unproved)
    if not (failed or args.keep):
        shutil.rmtree(folder)
    return 1 if failed else 0


@contextlib.contextmanager
def mutated(name: str) -> Iterator[Path]:
    """A copy of the tree without one guard; a soak of it must find that out."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        Path(folder).chmod(0o755)
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        patch = MUTANTS / f"{name}.patch"
        subprocess.run(["git", "apply", patch], cwd=tree, check=True)
        yield tree


def tell(result: Result) -> None:
    """For people, then one line for programs."""
    figures = result.figures
    print()
    for kind, counts in result.faults.items():
        print(f"  {kind:<22} {counts['injected']:>4} injected {counts['effective']:>4} effective")
    print(f"  the latest job was {figures['late_s']} s late ({figures['late']}), outages included;")
    print(f"  while its queue was served, {figures['max_stuck_s']} s ({figures['stuck']})")
    print(f"  after the last fault all was taken up within {figures['recovered_within_s']} s")
    print(f"  processes were started anew {figures['restarts']} times")
    if result.unproved:
        print(f"  never had an effect, so nothing is proved: {', '.join(result.unproved)}")
    for name, sentences in result.violations.items():
        for sentence in sentences:
            print(f"{name} is broken: {sentence}")
    if result.broken:
        print(f"first seen after {result.broken_after:.0f} s; how to look: {result.folder}")
        print("  faults.jsonl: what was done when; artefacts/: logs, the database's texts;")
        print("  rail.jsonl, receiver.jsonl, producer.jsonl, vendor.jsonl: grep the id")
    print(json.dumps(result.as_json()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
