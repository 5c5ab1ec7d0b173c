"""The source as `test_house.py` looks at it: every file parsed once, imports resolved."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("vpay_tasks", "vpay_sandbox", "tests", "bench")


@dataclass(frozen=True)
class Import:
    """One imported module; `name` is resolved to a module where the source has one."""

    name: str
    line: int
    deferred: bool


@dataclass(frozen=True)
class Module:
    """One Python file."""

    path: Path

    @cached_property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def name(self) -> str:
        return self.where.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [n for n in self.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [n for n in self.nodes if isinstance(n, ast.Call)]

    @cached_property
    def imports(self) -> list[Import]:
        top = set(self.tree.body)
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                source = self._absolute(node)
                names = [
                    inner if (inner := f"{source}.{alias.name}") in module_names() else source
                    for alias in node.names
                ]
            else:
                continue
            found += [Import(name, node.lineno, node not in top) for name in dict.fromkeys(names)]
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        words = self.where.removesuffix(".py").split("/")[: -node.level]
        return ".".join([*words, node.module] if node.module else words)

    @cached_property
    def part(self) -> str:
        """The part of vpay_tasks that it belongs to: store for vpay_tasks.store.jobs."""
        return part_of(self.name)


def part_of(name: str) -> str:
    """The second word of a dotted name; "" for the package itself."""
    return (*name.split("."), "")[1]


@cache
def modules(package: str) -> list[Module]:
    """The modules of a top-level package, or of a folder below one."""
    folder = ROOT / package.replace(".", "/")
    return [
        Module(path) for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts
    ]


@cache
def module_names() -> frozenset[str]:
    return frozenset(module.name for package in PACKAGES for module in modules(package))


@cache
def sql_files() -> dict[Path, dict[str, str]]:
    """The statements of each .sql of store/, by name."""
    found = {}
    for path in sorted((ROOT / "vpay_tasks" / "store").glob("*.sql")):
        parts = re.split(r"^-- name: (\w+)$", path.read_text("utf-8"), flags=re.M)[1:]
        found[path] = dict(zip(parts[::2], parts[1::2], strict=True))
    return found


def none(findings: Iterable[str]) -> None:
    """Fail with every finding, a line each."""
    found = sorted(set(findings))
    assert not found, "\n" + "\n".join(found)


def called(call: ast.Call) -> str:
    """The dotted text of what is called: `connection.execute`."""
    return ast.unparse(call.func)


def parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def enclosing(node: ast.AST, above: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """What `node` stands in, from the inside out."""
    while (found := above.get(node)) is not None:
        yield found
        node = found
