"""Mutants of store/*.sql: one condition, lock, order of locks or assignment less at a time.

By the letters alone, without a parser of SQL: the files are in one style, and what is no SQL
any more is noticed by the first test that sends it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|%\(\w+\)s|::|\w+|[^\s\w]")
ENDS = {
    *("ORDER", "GROUP", "LIMIT", "FOR", "RETURNING", "UNION", "THEN", "WHERE", "JOIN", "LEFT"),
    *("CROSS", "FULL", "ON", "SET", "END", "ELSE", "WHEN", "AS", "FROM", "DO", ",", ";"),
}
OPENS = {"WHERE", "ON", "WHEN", "AND", "OR"}


@dataclass(frozen=True)
class Mutant:
    """`text` with `[start:end]` as `becomes`; `name` stays the same while others change."""

    file: str
    statement: str
    what: str
    start: int
    end: int
    becomes: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.statement}: {self.what}"

    def of(self, text: str) -> str:
        return text[: self.start] + self.becomes + text[self.end :]


@dataclass(frozen=True)
class Token:
    """One word or sign, and how many parentheses are open around it."""

    text: str
    start: int
    end: int
    depth: int


def mutants(file: Path) -> list[Mutant]:
    """All of one file, in its order."""
    text = file.read_text("utf-8")
    found: list[Mutant] = []
    for part in re.finditer(r"^-- name: (\w+)$(.*?)(?=^-- name: |\Z)", text, re.M | re.S):
        tokens = list(_tokens(part[2], part.start(2)))
        seen: Counter[str] = Counter()
        for start, end, becomes in (*_conditions(tokens), *_locks(tokens), *_assignments(tokens)):
            gone = " ".join(text[start:end].split())
            seen[gone] += 1
            what = f"{gone} → {becomes or 'nothing'}"
            again = f" ({seen[gone]})" if seen[gone] > 1 else ""
            found.append(Mutant(file.name, part[1], what + again, start, end, becomes))
    return found


def _tokens(text: str, offset: int) -> Iterator[Token]:
    depth = 0
    for found in TOKEN.finditer(text):
        if found[0].startswith("--"):
            continue
        depth -= found[0] == ")"
        yield Token(found[0], offset + found.start(), offset + found.end(), depth)
        depth += found[0] == "("


def _conditions(tokens: list[Token]) -> Iterator[tuple[int, int, str]]:
    """Each operand of an AND or OR, and each that stands alone behind WHERE, ON or WHEN."""
    for at, token in enumerate(tokens[:-1]):
        inner = token.text == "("
        if not (inner or token.text in OPENS) or tokens[at + 1].text in {"CONFLICT", "true"}:
            continue
        depth = token.depth + inner
        rest = tokens[at + 1 :]
        size = next((i for i, t in enumerate(rest) if _ends(t, rest[i - 1], depth)), len(rest))
        behind = rest[size].text if size < len(rest) and rest[size].depth == depth else ""
        alone = inner and behind not in {"AND", "OR"}
        if size == 0 or alone or rest[0].text == "SELECT":
            continue
        if size == 1 and rest[0].text.startswith("'"):
            continue  # a word that a CASE compares with is no condition
        either = "OR" in {token.text, behind} and "AND" not in {token.text, behind}
        yield rest[0].start, rest[size - 1].end, "false" if either else "true"


def _ends(token: Token, before: Token, depth: int) -> bool:
    if token.depth < depth:
        return True
    if token.text == "FROM" and before.text == "DISTINCT":
        return False
    return token.depth == depth and token.text in ENDS | {"AND", "OR"}


def _locks(tokens: list[Token]) -> Iterator[tuple[int, int, str]]:
    """Each lock, each SKIP LOCKED, and the order in which rows are locked."""
    for at, token in enumerate(tokens[:-1]):
        if [token.text, tokens[at + 1].text] == ["SKIP", "LOCKED"]:
            yield token.start, tokens[at + 1].end, ""
        if [token.text, tokens[at + 1].text] == ["FOR", "UPDATE"]:
            rest = tokens[at:]
            size = next((i for i, t in enumerate(rest) if t.depth < token.depth), len(rest))
            yield token.start, rest[size - 1].end, ""
            mine = [t for t in tokens[:at] if t.depth >= token.depth]
            order = next((t for t in reversed(mine) if t.text == "ORDER"), None)
            limit = next((t for t in reversed(mine) if t.text == "LIMIT"), token)
            if order is not None and order.start > _select(tokens[:at], token.depth):
                behind = limit.start if limit.start > order.start else token.start
                yield order.start, behind, ""


def _select(tokens: list[Token], depth: int) -> int:
    """Where the SELECT begins that the end of `tokens` belongs to."""
    return next(t.start for t in reversed(tokens) if t.text == "SELECT" and t.depth == depth)


def _assignments(tokens: list[Token]) -> Iterator[tuple[int, int, str]]:
    """Each of a SET's, with the comma before or behind it; the only one of its SET becomes
    itself, which is the table's own mutant."""
    for at, token in enumerate(tokens):
        if token.text != "SET":
            continue
        rest = tokens[at + 1 :]
        size = next(
            (
                i
                for i, t in enumerate(rest)
                if t.depth < token.depth
                or (t.depth == token.depth and t.text in {"FROM", "WHERE", "RETURNING"})
            ),
            len(rest),
        )
        commas = [i for i in range(size) if rest[i].text == "," and rest[i].depth == token.depth]
        edges = [-1, *commas, size]
        if len(edges) == 2:
            continue
        for number, (before, behind) in enumerate(pairwise(edges)):
            first = rest[before + 1] if number == 0 else rest[before]
            last = rest[behind] if number == 0 else rest[behind - 1]
            yield first.start, last.end, ""
