"""What the documents claim is attacked by a test that is still there."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.house import ROOT, modules, none
from tests.kills import test_matrix

DOCUMENTS = [ROOT / name for name in ("SECURITY.md", "RELIABILITY.md") if (ROOT / name).exists()]
NAME = re.compile(r"`((?:tests/[\w/]+\.py)?(?:::)?(?:test_\w+)?)(?:\[[^`]*\])?`")
CASE = re.compile(r"`([^`]*::test_\w+)\[([^`]*)\]`")
CASES = {
    "tests/kills/test_matrix.py::"
    "test_a_process_that_is_harmed_leaves_what_others_end_as_declared": {
        name for name, _, _ in test_matrix.named()
    }
}
"""By test, the ids of its cases, for those whose cases a document may name."""
TARGET = re.compile(r"`make ([a-z-]+)")


@cache
def names_by_file() -> dict[str, set[str]]:
    """By file, the names of its tests."""
    return {
        m.where: set(re.findall(r"^ *(?:async )?def (test_\w+)", m.text, re.MULTILINE))
        for m in modules("tests")
    }


def named(text: str) -> list[str]:
    """Each `tests/….py`, `tests/….py::test_…` and `test_…` that stands as code."""
    return [name for name in NAME.findall(text) if name]


def is_there(name: str) -> bool:
    where, _, test = name.rpartition("::") if "::" in name else ("", "", name)
    if test.endswith(".py"):
        return test in names_by_file()
    if where:
        return test in names_by_file().get(where, set())
    return any(test in names for names in names_by_file().values())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_is_there(document: object) -> None:
    text = (ROOT / str(document)).read_text("utf-8")
    assert named(text)
    none(f"{document}: no such test: {name}" for name in named(text) if not is_there(name))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_case_that_a_document_names_is_there(document: object) -> None:
    text = (ROOT / str(document)).read_text("utf-8")
    none(f"{document}: no such case: {test}[{case}]" for test, case in gone(text))


def gone(text: str) -> list[tuple[str, str]]:
    """The cases that `text` names and that no test has."""
    return [(test, case) for test, case in CASE.findall(text) if case not in CASES.get(test, ())]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_a_document_names_is_there(document: object) -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = (ROOT / str(document)).read_text("utf-8")
    none(f"{document}: no such target: make {t}" for t in TARGET.findall(text) if t not in made)


def test_every_threat_that_is_answered_has_a_test() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    table = text.partition("| whoever |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) > 10
    none(f"no test in: {row[:60]}" for row in rows if not named(row))


def test_a_name_that_is_gone_is_noticed() -> None:
    text = "`tests/test_claims.py::test_gone`, `test_that_never_was`, `tests/nowhere.py`, `x.py`"
    assert [is_there(name) for name in named(text)] == [False, False, False]
    here = "`tests/test_claims.py`, `tests/test_claims.py::test_a_name_that_is_gone_is_noticed[x]`"
    assert [is_there(name) for name in named(here)] == [True, True]


def test_a_case_that_is_gone_is_noticed() -> None:
    (matrix,) = CASES
    here = f"`{matrix}[claim_written-stopped]`"
    assert gone(here) == []
    assert gone(here.replace("-stopped", "-halted")) == [(matrix, "claim_written-halted")]
    assert gone("`tests/x.py::test_y[z]`") == [("tests/x.py::test_y", "z")]
