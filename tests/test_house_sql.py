"""The rules of the house about SQL: where it stands, who runs it, what it must have."""

from __future__ import annotations

import ast
import re

from tests.house import Module, called, enclosing, modules, none, parents, sql_files

EXECUTORS = {"vpay_tasks.store.sql", "vpay_tasks.store.db", "vpay_tasks.store.migrate"}
SWEEPS = re.compile(r"^(sweep|reap|scan|stage|claim|page|pending)")

PRODUCT = modules("vpay_tasks")


def test_sql_is_executed_from_files_only() -> None:
    for m in PRODUCT:
        for c in m.calls:
            if not re.search(r"\.(execute|executemany|copy)$", called(c)):
                continue
            where = f"{m.where}:{c.lineno}"
            assert m.name in EXECUTORS, f"{where}: put the statement into a .sql file of store/"
            text = c.args[0]
            fixed = isinstance(text, ast.Constant) or ast.unparse(text).endswith(
                ("statement.query", ".text.encode()")
            )
            assert fixed, f"{where}: SQL is never built at run time: {ast.unparse(text)}"


def test_each_statement_is_run_by_the_function_of_its_name_alone() -> None:
    findings = []
    for path, statements in sql_files().items():
        m = Module(path.with_suffix(".py"))
        users: dict[str, list[str]] = {name: [] for name in statements}
        above = parents(m.tree)
        for node in m.nodes:
            if not (isinstance(node, ast.Subscript) and ast.unparse(node.value) == "SQL"):
                continue
            name = ast.literal_eval(node.slice)
            around = [n for n in enclosing(node, above) if isinstance(n, ast.FunctionDef)]
            users.setdefault(name, []).append(around[-1].name if around else "the module")
        for name, callers in users.items():
            if name not in statements:
                findings.append(f"{m.where}: SQL[{name!r}] is not in {path.name}")
            elif callers != [name]:
                findings.append(
                    f"{m.where}: statement {name} of {path.name} is run by {callers or 'nobody'};"
                    f" its one caller is a function named {name}"
                )
    none(findings)


def test_statement_files_are_read_by_their_own_module() -> None:
    none(
        f"{m.where}:{c.lineno}: write SQL = sql.load(__name__)"
        for m in PRODUCT
        for c in m.calls
        if called(c) == "sql.load" and ast.unparse(c) != "sql.load(__name__)"
    )


def test_sweeps_have_a_limit() -> None:
    none(
        f"{path.name}:{name}: has no LIMIT: a sweep goes in pages"
        for path, statements in sql_files().items()
        for name, text in statements.items()
        # What inserts takes one row and sweeps nothing.
        if SWEEPS.match(name)
        and not re.match(r"\s*(--.*\s*)*INSERT\b", text)
        and not re.search(r"\bLIMIT\b", text)
    )


def test_statements_name_their_schema_and_columns() -> None:
    bare = re.compile(r"\b(?:INSERT INTO|UPDATE(?! SET)|DELETE FROM)\s+(?!vpay\.|OF\b)(\w+)")
    none(
        f"{path.name}:{name}: write vpay.{match[1]}: no search_path is relied on"
        for path, statements in sql_files().items()
        for name, text in statements.items()
        for match in bare.finditer(re.sub(r"--.*", "", text).replace("FOR UPDATE", ""))
        if match[1] not in {"SET", "SKIP"}
    )
    none(
        f"{path.name}:{name}: name the columns instead of *"
        for path, statements in sql_files().items()
        for name, text in statements.items()
        if re.search(r"(SELECT|RETURNING|,)\s+(\w+\.)?\*", re.sub(r"--.*", "", text))
    )
