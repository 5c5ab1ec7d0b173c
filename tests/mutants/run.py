"""`make mutants`: each patch of this folder takes one guard out; its tests must then fail.

A patch begins with a line `tests: tests/unit/test_settling.py …` – pytest's arguments, in
which at least one test must fail – and goes on as `git diff` writes it. Patches are applied
one at a time to a copy of the tree. Words select patches by a part of their name.

`--results FILE` keeps a line for each patch and passes over those that it has: a run that was
ended goes on there, and `--shard 1/2` with `--shard 2/2` may share it. `--layers` counts the
parts of the suite that the patches name; it runs nothing, so it doesn't say who fails for them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".tox", "__pycache__", "*.egg-info", ".*_cache")
LONG = ("_plans", "old_rows", "tests/e2e")
"""Tests that load a million rows or start whole fleets: last, for the rest says more, sooner."""
TIME_OUT_S = 600
"""The longest single test takes two minutes alone; lower, and a busy machine looks like a hang."""
CLEAN_UP_S = 30
"""For pytest's fixtures to stop their servers after a time-out."""


@dataclass(frozen=True)
class Result:
    """What became of one mutant. `how` is killed, survived, timed out or not applied."""

    mutant: str
    digest: str
    how: str
    test: str
    words: str
    seconds: float

    @property
    def caught(self) -> bool:
        """A hang is noticed by whoever waits for the suite, so it counts; it is told apart."""
        return self.how in {"killed", "timed out"}


def main(words: list[str]) -> int:
    asked = _parser().parse_args(words)
    patches = [
        path
        for path in sorted(HERE.glob("*.patch"))
        if not asked.words or any(word in path.stem for word in asked.words)
    ]
    if asked.layers:
        print(layers(patches))
        return 0
    number, of = map(int, asked.shard.split("/"))
    patches = sorted(patches, key=_is_long)[number - 1 :: of]
    known = _known(asked.results)
    results = []
    for patch in patches:
        result = known.get((patch.stem, _digest(patch))) or run(patch, asked.time_out)
        if asked.results and (result.mutant, result.digest) not in known:
            with asked.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
        results.append(result)
    print(summary(results))
    return 0 if results and all(result.caught for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of patches' names; all without")
    parser.add_argument("--results", type=Path, metavar="FILE", help="go on from, and add to")
    parser.add_argument("--shard", default="1/1", metavar="N/OF")
    parser.add_argument("--time-out", type=float, default=TIME_OUT_S, metavar="SECONDS")
    parser.add_argument(
        "--layers", action="store_true", help="count what the patches name; run nothing"
    )
    return parser


def run(patch: Path, time_out: float) -> Result:
    """Applies `patch` to a copy and runs its tests, until the first that fails."""
    began = time.monotonic()
    found = re.match(r"tests: (.+)\n", patch.read_text("utf-8"))
    if found is None:
        how, test, words = "not applied", "", "its first line must be `tests: …`"
    else:
        how, test, words = _try(patch, found[1].split(), time_out)
    result = Result(
        patch.stem, _digest(patch), how, test, words, round(time.monotonic() - began, 1)
    )
    print(f"{how if result.caught else how.upper():<12}{patch.stem}: {test or words}", flush=True)
    return result


def _try(patch: Path, arguments: list[str], time_out: float) -> tuple[str, str, str]:
    """How it ended, the test that failed and its error's first words."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        applied = subprocess.run(
            ["git", "apply", patch], cwd=tree, capture_output=True, text=True, check=False
        )
        if applied.returncode != 0:
            return "not applied", "", applied.stderr.strip()
        code, told = pytest(tree, ["-x", *arguments], time_out)
    if code is None:
        return "timed out", "", f"no end within {time_out:.0f} s"
    failed = re.search(r"^FAILED (\S+?)(?:\[.*?\])?(?: - (.*))?$", told, re.MULTILINE)
    if code == 1 and failed:
        return "killed", failed[1], (failed[2] or "")[:200]
    return "survived", "", (told.strip().splitlines() or ["no output"])[-1]


def pytest(tree: Path, arguments: list[str], time_out: float) -> tuple[int | None, str]:
    """Runs tests in a copy of the tree: the exit code – None if they had to be ended – and
    what was printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "--tier=all", *arguments],
        cwd=tree,
        # The copy comes before an editable install of the original.
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told = process.communicate(timeout=time_out)[0]
        return process.returncode, told
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=CLEAN_UP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        return None, ""


def summary(results: list[Result]) -> str:
    """One line: how many, and the names of those that no test caught."""
    counts = Counter(result.how for result in results)
    told = ", ".join(f"{number} {how}" for how, number in sorted(counts.items()))
    missed = " ".join(result.mutant for result in results if not result.caught)
    return f"{len(results)} mutants: {told or 'none'} {missed}".rstrip()


def layers(patches: Iterable[Path]) -> str:
    """How many patches name tests of each part of the suite: those that are to fail for them."""
    parts: Counter[str] = Counter()
    for patch in patches:
        first = patch.read_text("utf-8").partition("\n")[0]
        # Of a patch that names two files, the first.
        found = re.search(r"tests/([a-z0-9_]+)", first)
        parts[found[1].replace("test_house", "house") if found else "?"] += 1
    rows = [f"| {part} | {number} |" for part, number in parts.most_common()]
    return "\n".join(
        ["| tests named | patches |", "|---|--:|", *rows, f"| all | {parts.total()} |"]
    )


def _known(path: Path | None) -> dict[tuple[str, str], Result]:
    if path is None or not path.exists():
        return {}
    rows = (Result(**json.loads(line)) for line in path.read_text("utf-8").splitlines())
    return {(row.mutant, row.digest): row for row in rows}


def _digest(patch: Path) -> str:
    return hashlib.sha256(patch.read_bytes()).hexdigest()[:12]


def _is_long(patch: Path) -> bool:
    first = patch.read_text("utf-8").partition("\n")[0]
    return any(word in first for word in LONG)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
