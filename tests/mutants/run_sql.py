"""`make mutants-sql`: the mutants of sql.py, each against the tests that run its statement.

Tools that mutate Python don't see store/*.sql, where most of the guards stand. What no test
notices is a guard without a test, or one for speed only: then known.tsv says so, with a reason.

All run in one copy of the tree and on one Postgres and one Valkey; each is a fork of a process
that has imported the tests already, with the statement changed in its memory and in the file,
where processes that a test starts read it. Words are patterns of a mutant's name, which is
`file:statement: text → what instead`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mutants.run import HERE, LEFT_OUT, ROOT
from tests.mutants.sql import Mutant, mutants
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.valkey import Valkey
from vpay_tasks.store import migrate, sql
from vpay_tasks.store.db import connect

STORE = Path("vpay_tasks/store")
KNOWN = HERE / "known.tsv"
TESTS = [
    f"tests/{part}"
    for part in ("store", "runtime", "handlers", "payments", "webhooks", "inbox", "web", "cli")
]
FIRST = "test_bystanders"
UNTRIED = "SURVIVED 0: no test runs it in its own process"
TIME_OUT_S = 120
ENOUGH_S = 30
"""Of a statement's tests, cheapest first: hundreds run a claim, and few notice what these
don't. Higher finds a few kills more and takes much longer for each survivor."""


def main(words: list[str]) -> int:
    """Makes the copy, and goes on in it."""
    if "--here" in words:
        return _run_here(_parser().parse_args(words))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        again = [sys.executable, "-m", "tests.mutants.run_sql", "--here", *words]
        environment = {**os.environ, "PYTHONPATH": str(tree), "VPAY_MUTANTS": str(Path.cwd())}
        return subprocess.run(again, cwd=tree, env=environment, check=False).returncode


def _run_here(asked: argparse.Namespace) -> int:
    reasons, done = known(), _done(asked.results)
    every = [mutant for file in sorted(STORE.glob("*.sql")) for mutant in mutants(file)]
    # In the order of the words.
    wanted = [m for word in asked.words or [""] for m in every if re.search(word, m.name)]
    chosen = [m for m in dict.fromkeys(wanted) if m.name not in reasons]
    with servers():
        if not asked.trace.exists():
            _trace(asked.trace)
        tests = _tests(asked.trace)
        _in_fork(["--collect-only", *TESTS], keep=True)
        survivors = []
        for mutant in chosen:
            how = done.get(mutant.name) or run(mutant, _enough(tests, mutant, asked.seconds))
            if mutant.name not in done and asked.results:
                with asked.results.open("a", encoding="utf-8") as file:
                    file.write(f"{mutant.name}\t{how}\n")
            if how.startswith("SURVIVED"):
                survivors.append(mutant.name)
    print(f"{len(chosen)} mutants, {len(survivors)} survived")
    print("\n".join(survivors))
    return 1 if survivors or not chosen else 0


@contextmanager
def servers() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Postgres(Path(folder) / "pg", settings={"fsync": "off"}) as postgres,
        Valkey(Path(folder) / "valkey") as valkey,
    ):
        os.environ["VPAY_TEST_POSTGRES"] = postgres.url()
        os.environ["VPAY_TEST_TEMPLATE"] = _template(postgres)
        os.environ["VPAY_TEST_BROKER"] = valkey.url()
        yield


def _template(postgres: Postgres) -> str:
    """What every fork clones its databases from, migrated once."""
    name = "vpay_template"
    with connect(postgres.url(), application="mutants") as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    with connect(postgres.url(name), application="mutants") as connection:
        migrate.apply(connection)
    return name


def run(mutant: Mutant, tests: list[str]) -> str:
    """What became of it: the test that fails, or what survived how many."""
    if not tests:  # pytest would run all there are
        print(f"{mutant.name}: {UNTRIED}", flush=True)
        return UNTRIED
    path = STORE / mutant.file
    whole = path.read_text("utf-8")
    path.write_text(mutant.of(whole), "utf-8")
    began = time.monotonic()
    try:
        code, told = _in_fork(["-x", "-p", "no:randomly", *tests], reload=mutant.file)
    finally:
        path.write_text(whole, "utf-8")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)
    if code is None:
        how = "timed out"
    elif code == 1 and failed:
        how = f"killed by {failed[1]}"
    else:
        how = f"SURVIVED {len(tests)}: {(told.strip().splitlines() or ['no output'])[-1]}"
    print(f"{mutant.name}: {how} [{time.monotonic() - began:.1f} s]", flush=True)
    return how


def _in_fork(
    words: list[str], *, reload: str | None = None, keep: bool = False
) -> tuple[int | None, str]:
    """pytest's exit code (None: it had to be ended) and what it printed. `reload`: with this
    file's statements as they are now. `keep`: in this very process, for what it imports."""
    with tempfile.TemporaryFile("w+") as output:
        if keep:
            saved = os.dup(1)
            os.dup2(output.fileno(), 1)
            code: int | None = pytest.main(["-q", *words])
            os.dup2(saved, 1)
        else:
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                os.setsid()
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                try:
                    _reload(reload)
                    code = pytest.main(["-q", *words])
                    sys.stdout.flush()
                finally:
                    os._exit(code if isinstance(code, int) else 3)
            code = _awaited(pid)
        output.seek(0)
        return code, output.read()


def _reload(file: str | None) -> None:
    if file is not None:
        statements = sys.modules[f"vpay_tasks.store.{Path(file).stem}"].SQL
        statements.update(sql.load(f"vpay_tasks.store.{Path(file).stem}"))


def _awaited(pid: int) -> int | None:
    ended = os.pidfd_open(pid)
    try:
        in_time, _, _ = select.select([ended], [], [], TIME_OUT_S)
    finally:
        os.close(ended)
    if not in_time:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None


def _trace(path: Path) -> None:
    """Runs the suite once, to learn which test runs which statement."""
    os.environ["VPAY_TRACE"] = str(path)
    _in_fork(["-p", "tests.mutants.trace", *TESTS])


def _tests(path: Path) -> dict[str, dict[str, float]]:
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for line in path.read_text("utf-8").splitlines():
        for statement, tests in json.loads(line).items():
            found[statement].update(tests)
    return found


def _enough(tests: dict[str, dict[str, float]], mutant: Mutant, seconds: float) -> list[str]:
    spent = 0.0
    chosen: list[str] = []
    mine = tests.get(f"{mutant.file}:{mutant.statement}", {})
    # What compares whole tables first, then what is about the statement: those notice most.
    for _, took, test in sorted((_far(test), took, test) for test, took in mine.items()):
        spent += took
        if chosen and spent > seconds:
            break
        chosen.append(test)
    return chosen


def _far(test: str) -> int:
    return 0 if FIRST in test else 1 if test.startswith(f"{TESTS[0]}/") else 2


def known() -> dict[str, str]:
    """Mutants that nothing has to notice, and why."""
    lines = KNOWN.read_text("utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)


def _done(path: Path | None) -> dict[str, str]:
    if path is None or not path.exists():
        return {}
    return dict(line.split("\t", 1) for line in path.read_text("utf-8").splitlines())


def _path(text: str) -> Path:
    """As whoever called meant it: this process is in a copy of the tree."""
    return Path(os.environ.get("VPAY_MUTANTS", "."), text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="patterns of names")
    parser.add_argument("--trace", type=_path, default=_path("/tmp/vpay-trace.jsonl"))
    parser.add_argument("--results", type=_path, metavar="FILE", help="go on from, and add to")
    parser.add_argument("--seconds", type=float, default=ENOUGH_S, help="of tests for a mutant")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
