"""The rules of the house that a program can check, in under a second.

Each message says what to do. A rule that is in the way is changed here and in
CONTRIBUTING.md, not worked around.
"""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections import Counter

import vpay_tasks
from tests.house import ROOT, called, modules, none, part_of
from vpay_tasks import telemetry

LEVELS = {
    "errors": 0,
    "placeholders": 0,
    "secrecy": 0,
    "stand_ins": 0,
    "tables": 0,
    "transport": 0,
    "telemetry": 1,
    "config": 1,
    "core": 2,
    "sentry": 2,
    "store": 3,
    "rails": 3,
    "payments": 4,
    "webhooks": 4,
    "inbox": 4,
    "handlers": 5,
    "parts": 5,
    "runtime": 6,
    "web": 6,
    "wiring": 7,
    "status": 7,
    "doctor": 8,
    "actors": 9,
    "cli": 9,
    "": 10,
}
"""Imports go to a lower level, or stay in their own part; never sideways."""

OWNERS = {
    "cryptography": {"payments", "webhooks"},
    "dramatiq": {"runtime", "actors"},
    "http.client": {"webhooks", "rails"},
    "pika": {"runtime"},
    "prometheus_client": {"runtime", "web"},
    "psycopg": {"store"},
    "psycopg_pool": {"store"},
    "pydantic": {"config", "rails", "tables"},
    "redis": {"runtime"},
    "requests": {"rails"},
    "sentry_sdk": {"sentry"},
    "starlette": {"web"},
    "tenacity": {"runtime"},
    "tomllib": {"config"},
    "urllib.request": set[str](),
    "uvicorn": set[str](),
    "urllib3": {"webhooks", "rails"},
}
"""Who may import what: to replace a library is then to change one part."""

IMPURE = {
    *("asyncio", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets"),
    *("shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading", "time"),
    *("urllib", "vpay_tasks.telemetry"),
}
SHAPELESS = {"utils", "util", "common", "base", "manager", "helpers", "misc", "tools"}
SETTLERS = {"vpay_tasks.runtime.settle"}
WAITS_ALLOWED: dict[str, str] = {
    # file: why it may hold what the rule forbids
}

CLOCKS = {
    "vpay_tasks/cli/doctor.py": "the hour of a report, for the eye: Postgres may be out of reach",
    "vpay_tasks/cli/webhooks.py": "signs by hand, for a receiver to try",
    "vpay_tasks/inbox/receive.py": "compared with the time that a vendor signed",
    "vpay_tasks/webhooks/sign.py": "the check that a receiver runs on its own machine",
}
"""Who may read this machine's wall clock, and why: nothing that the database keeps or compares
is decided by it."""

LOADED_BY_NAME = {
    "vpay_tasks/parts.py": "where alerts go: without a DSN its library need not be there",
    "vpay_tasks/rails/__init__.py": "a third party's rail, which the settings name",
    "vpay_tasks/wiring.py": "the modules of the user's tasks, which the settings name",
    "vpay_tasks/runtime/broker.py": "one broker's module: the other's library need not be there",
}
"""Who may import by a name that is known only when it runs, and why."""

PRODUCT = modules("vpay_tasks")
SANDBOX = modules("vpay_sandbox")
TESTS = modules("tests")


def test_imports_go_down() -> None:
    none(
        f"{m.where}:{i.line}: {m.part or 'the package'} may not import {i.name}: imports go down"
        " (tests/test_house.py: LEVELS); move the code, or pass what it needs as an argument"
        for m in PRODUCT
        for i in m.imports
        if i.name.startswith("vpay_tasks")
        and part_of(i.name) != m.part
        and LEVELS[part_of(i.name)] >= LEVELS[m.part]
    )


def test_the_product_never_imports_its_sandbox_or_tests() -> None:
    none(
        f"{m.where}:{i.line}: imports {i.name}: what ships stands on its own"
        for m in PRODUCT
        for i in m.imports
        if i.name.split(".")[0] in {"vpay_sandbox", "tests", "bench"}
    )


def test_each_library_has_one_owner() -> None:
    none(
        f"{m.where}:{i.line}: {i.name} belongs to {sorted(owners) or 'nobody'}: ask its owner for"
        " what you need, or give it an owner (tests/test_house.py: OWNERS)"
        for m in PRODUCT
        for i in m.imports
        if (owners := _owners(i.name)) is not None and m.part not in owners
    )


def _owners(name: str) -> set[str] | None:
    words = name.split(".")
    for size in range(len(words), 0, -1):
        if (found := OWNERS.get(".".join(words[:size]))) is not None:
            return found
    return None if words[0] in sys.stdlib_module_names or words[0] == "vpay_tasks" else set()


def test_no_import_is_deferred() -> None:
    none(
        f"{m.where}:{i.line}: import {i.name} at the top: a deferred import hides a cycle"
        for m in PRODUCT
        for i in m.imports
        if i.deferred
    )


def test_postgres_has_the_only_clock() -> None:
    none(
        f"{m.where}:{n.lineno}: {ast.unparse(n)}: every machine has another one: take now() from"
        " the statement that reads the row, or give a reason (tests/test_house.py: CLOCKS)"
        for m in PRODUCT
        for n in m.nodes
        if isinstance(n, ast.Attribute)
        and ast.unparse(n) in {"time.time", "datetime.now", "datetime.utcnow", "datetime.today"}
        and m.where not in CLOCKS
    )


def test_modules_are_loaded_by_name_only_where_told() -> None:
    none(
        f"{m.where}:{c.lineno}: {called(c)} hides an import from every other rule: import at the"
        " top, or give a reason (tests/test_house.py: LOADED_BY_NAME)"
        for m in PRODUCT
        for c in m.calls
        if called(c).rpartition(".")[2] in {"import_module", "__import__"}
        and m.where not in LOADED_BY_NAME
    )


def test_modules_import_each_other_without_a_cycle() -> None:
    known = {m.name: m for m in (*PRODUCT, *SANDBOX)}
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import cycle: {' → '.join((*path, name))}; move the shared part"
        if name not in done:
            for i in known[name].imports:
                if i.name in known and i.name != name:
                    walk(i.name, (*path, name))
            done.add(name)

    for name in known:
        walk(name, ())


def test_core_is_pure() -> None:
    core = modules("vpay_tasks.core")
    none(
        f"{m.where}:{i.line}: core may not import {i.name}: pass the value in"
        for m in core
        for i in m.imports
        if i.name.split(".")[0] in IMPURE or i.name in IMPURE
    )
    none(
        f"{m.where}:{c.lineno}: core may not call {called(c)}: pass the value in"
        for m in core
        for c in m.calls
        if re.search(r"(^|\.)(open|print|input|now|utcnow|today|uuid1|uuid4)$", called(c))
    )


def test_only_the_settings_read_the_environment() -> None:
    none(
        f"{m.where}:{n.lineno}: only config.py reads the environment: make it a setting"
        for m in PRODUCT
        if m.part != "config"
        for n in m.nodes
        if isinstance(n, ast.Attribute) and n.attr in {"environ", "getenv"}
    )


def test_handlers_do_not_import_each_other() -> None:
    none(
        f"{m.where}:{i.line}: imports {i.name}: handlers enqueue each other by core.kinds"
        for m in modules("vpay_tasks.handlers")
        for i in m.imports
        if i.name.startswith("vpay_tasks.handlers.") and i.name != "vpay_tasks.handlers.context"
    )


def test_files_and_functions_stay_small() -> None:
    none(
        f"{m.where}: {len(m.lines)} lines; at most 400: split it by what it is about"
        for m in (*PRODUCT, *SANDBOX, *TESTS)
        if len(m.lines) > 400
    )
    none(
        f"{m.where}:{f.lineno}: {f.name} has {size} lines; at most {limit}: name its steps"
        for m in (*PRODUCT, *SANDBOX, *TESTS)
        for f in m.functions
        for limit in [40 if m.part == "handlers" and m in PRODUCT else 60]
        if (size := (f.end_lineno or f.lineno) - f.lineno + 1) > limit
    )


def test_names_say_what_is_inside() -> None:
    none(
        f"{m.where}: name it by what it is about, not {m.path.stem}"
        for m in (*PRODUCT, *SANDBOX, *TESTS)
        if SHAPELESS & set(m.path.stem.split("_"))
    )
    none(
        f"{m.where}:{n.lineno}: class {n.name}: name it by what it does"
        for m in (*PRODUCT, *SANDBOX)
        for n in m.nodes
        if isinstance(n, ast.ClassDef) and re.search(r"(Manager|Utils?|Helper)$", n.name)
    )


def test_rows_are_settled_in_one_place() -> None:
    none(
        f"{m.where}:{i.line}: only {sorted(SETTLERS)} may import the settle statements: answer,"
        " or use job.finishing()"
        for m in PRODUCT
        for i in m.imports
        if i.name == "vpay_tasks.store.settles" and m.name not in SETTLERS
    )


def test_only_run_job_catches_what_a_handler_raises() -> None:
    findings = []
    for m in PRODUCT:
        for c in m.calls:
            if not called(c).endswith(".handler") or m.name == "vpay_tasks.core.task":
                continue
            if m.name != "vpay_tasks.runtime.run_job":
                findings.append(f"{m.where}:{c.lineno}: handlers are run by run_job alone")
    none(findings)
    none(
        f"{m.where}:{n.lineno}: a handler has no try: raise, and run_job settles by the error"
        for m in modules("vpay_tasks.handlers")
        for n in m.nodes
        if isinstance(n, ast.Try)
        and any(h.type is None or "Exception" in ast.unparse(h.type) for h in n.handlers)
    )


def test_what_is_told_is_a_fixed_sentence() -> None:
    none(
        f"{m.where}:{c.lineno}: the sentence is constant; what varies is a field"
        for m in PRODUCT
        for c in m.calls
        if called(c).rpartition(".")[2] in {"say", "alert", "report_failure"}
        and m.part != "telemetry"
        and not (
            len(c.args) == 2
            # A parameter called sentence: a wrapper that adds fields, told by its callers.
            and (isinstance(c.args[1], ast.Constant) or ast.unparse(c.args[1]) == "sentence")
        )
    )
    none(
        f"{m.where}:{c.lineno}: count({ast.unparse(c.args[0])}): not in telemetry.COUNTERS"
        for m in PRODUCT
        for c in m.calls
        if called(c) in {"count", "telemetry.count"}
        and isinstance(c.args[0], ast.Constant)
        and c.args[0].value not in telemetry.COUNTERS
    )


def test_every_exception_to_a_rule_has_a_reason() -> None:
    none(
        f"{m.where}:{number}: say why behind the noqa"
        for m in (*PRODUCT, *SANDBOX, *TESTS)
        for number, line in enumerate(m.lines, 1)
        if re.search(r"# noqa(: [A-Z]+\d+(, ?[A-Z]+\d+)*)?\s*$", line)
    )


def test_tests_wait_for_conditions_and_imitate_nothing() -> None:
    forbidden = {
        "time.sleep": "wait with the eventually fixture",
        "sleep": "wait with the eventually fixture",
        "pytest.skip": "a test runs or is not there",
        "pytest.importorskip": "a test runs or is not there",
        "pytest.mark.skip": "a test runs or is not there",
        "pytest.mark.skipif": "a test runs or is not there",
    }
    tests = [m for m in TESTS if m.where not in WAITS_ALLOWED]
    none(
        f"{m.where}:{c.lineno}: {called(c)}: {forbidden[called(c)]}"
        for m in tests
        for c in m.calls
        if called(c) in forbidden
    )
    none(
        f"{m.where}:{i.line}: imports {i.name}: our own code is never imitated"
        for m in tests
        for i in m.imports
        if i.name.startswith(("unittest.mock", "pytest_mock", "mock"))
    )


def test_folders_of_tests_are_packages() -> None:
    none(
        f"{m.path.parent.relative_to(ROOT)}: needs an __init__.py: two files of one name would"
        " otherwise shadow each other"
        for m in TESTS
        if m.path.name.startswith("test_") and not (m.path.parent / "__init__.py").exists()
    )
    none(
        f"{m.where}:{f.lineno}: {f.name}: a test's name is a sentence"
        for m in TESTS
        for f in m.functions
        if f.name.startswith("test_") and f.name.count("_") < 3
    )


def test_every_package_is_shipped() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    shipped = set(setup["options"]["packages"].split())
    there = {m.name for m in (*PRODUCT, *SANDBOX) if m.path.name == "__init__.py"}
    assert shipped == there, f"setup.cfg: packages differs from the folders by {shipped ^ there}"


def test_the_public_names_are_few_and_sorted() -> None:
    names = vpay_tasks.__all__
    assert names == sorted(names)
    assert len(names) <= 20
    assert [name for name in names if not hasattr(vpay_tasks, name)] == []


def test_links_between_documents_lead_somewhere() -> None:
    none(
        f"{page.relative_to(ROOT)}: the link to {target} leads nowhere"
        for folder in (".", "schema", "deploy", "docs", "tests/**")
        for page in ROOT.glob(f"{folder}/*.md")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    )


def test_no_word_of_the_counters_is_told_twice() -> None:
    texts: Counter[str] = Counter(telemetry.COUNTERS.values())
    assert [text for text, times in texts.items() if times > 1] == []
