"""`make mutation`: mutmut over the modules that setup.cfg names, each against its fast tests.

In a copy of the tree, on one Postgres for all: mutmut forks for each mutant, and a server of
its own for each would take most of the time. Counts by module, then the survivors; `mutmut
show NAME` of each is printed with `--show`. Always all of them: given names, mutmut picks tests
by ids that hold the parameters' own odd characters, and finds none.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutants.run import LEFT_OUT, ROOT
from tests.mutants.run_sql import servers

LINE = re.compile(r"^\s*(\S+)\.(x\S*__mutmut_\d+): (.+)$", re.MULTILINE)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="print each survivor's difference")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        with servers():
            mutmut(tree, "run", "--max-children", "2")
        found = LINE.findall(mutmut(tree, "results", "--all", "true"))
        found = [(module, mutant, how) for module, mutant, how in found if how != "not checked"]
        print(table(Counter((module, how) for module, _, how in found)))
        survivors = [f"{module}.{mutant}" for module, mutant, how in found if how == "survived"]
        for name in survivors:
            print(mutmut(tree, "show", name) if asked.show else name)
    return 0 if found else 1


def mutmut(tree: Path, *words: str) -> str:
    """What it prints, without the line that it draws anew for each mutant."""
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *words],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout[-2_000:], done.stderr[-2_000:], file=sys.stderr)
    return done.stdout


def table(counts: Counter[tuple[str, str]]) -> str:
    """A line for each module: how many were killed, survived, met no test, hung."""
    ends = sorted({how for _, how in counts})
    rows = [
        [module, *(str(counts[module, how]) for how in ends)]
        for module in sorted({module for module, _ in counts})
    ]
    lines = [["module", *ends], ["---"] * (len(ends) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
