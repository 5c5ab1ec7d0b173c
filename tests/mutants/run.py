"""`make mutants`: each patch of this folder takes one guard out; its tests must then fail.

A patch begins with a line `tests: tests/unit/test_settling.py …` – pytest's arguments, in
which at least one test must fail – and goes on as `git diff` writes it. Patches are applied
one at a time to a copy of the tree. Arguments select patches by a part of their name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".tox", "__pycache__", "*.egg-info", ".*_cache")


def main(words: list[str]) -> int:
    patches = [
        path
        for path in sorted(HERE.glob("*.patch"))
        if not words or any(word in path.stem for word in words)
    ]
    survivors = [path.stem for path in patches if not killed(path)]
    print(f"{len(patches)} mutants, {len(survivors)} survived {', '.join(survivors)}".rstrip())
    return 1 if survivors or not patches else 0


def killed(patch: Path) -> bool:
    """Whether a test fails with `patch` applied; a patch that doesn't apply is a survivor."""
    found = re.match(r"tests: (.+)\n", patch.read_text("utf-8"))
    if found is None:
        print(f"SURVIVED {patch.stem}: its first line must be `tests: …`")
        return False
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        applied = subprocess.run(
            ["git", "apply", patch], cwd=tree, capture_output=True, text=True, check=False
        )
        if applied.returncode != 0:
            print(f"SURVIVED {patch.stem}: does not apply: {applied.stderr.strip()}")
            return False
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "--tier=all", *found[1].split()],
            cwd=tree,
            # The copy comes before an editable install of the original.
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )
    failed = done.returncode == 1 and " failed" in done.stdout
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    print(f"{'killed  ' if failed else 'SURVIVED'} {patch.stem}: {last}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
