"""What an installation requires stands in CONTRIBUTING.md, with the reason for its floor."""

from __future__ import annotations

import configparser
import re
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.house import ROOT, modules, none
from vpay_tasks.doctor.postgres import NEWEST_PG, OLDEST_PG

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", "utf-8")
RUNTIME_EXTRAS = ("rabbitmq", "sentry", "web")
ROW = re.compile(
    r"^\| ([\w, -]+?)(?: \(extra `(\w+)`\))? \| ([\d.]+)(?:, < (\d+))? \| (.+) \|$", re.MULTILINE
)


def required() -> dict[tuple[str, str], str]:
    """(library, extra or "") → its bounds."""
    places = {"": SETUP["options"]["install_requires"]}
    places |= {extra: SETUP["options.extras_require"][extra] for extra in RUNTIME_EXTRAS}
    found = {}
    for extra, text in places.items():
        for line in text.split("\n"):
            if line.strip():
                requirement = Requirement(line)
                found[requirement.name, extra] = str(requirement.specifier)
    return found


def explained() -> dict[tuple[str, str], str]:
    """The same by the table."""
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = table.partition("| library | floor | because |")[2].partition("\n\n")[0]
    found = {}
    rows = ROW.findall(table)
    assert len(rows) == len(table.strip().splitlines()) - 1, "a row that can't be read"
    for names, extra, floor, below, reason in rows:
        assert len(reason) > 10
        for name in names.split(", "):
            found[name, extra] = f"<{below},>={floor}" if below else f">={floor}"
    return found


def test_every_runtime_requirement_has_a_floor_with_its_reason_and_nothing_else_is_listed() -> None:
    assert explained() == required()


@pytest.mark.parametrize("extra", ["sandbox", "test", "bench"])
def test_what_only_developers_install_asks_for_no_less(extra: str) -> None:
    floors = {name: bounds for (name, _), bounds in required().items()}
    lower = [
        line
        for line in SETUP["options.extras_require"][extra].split("\n")
        if line.strip() and (name := Requirement(line).name) in floors
        if str(Requirement(line).specifier) != floors[name]
    ]
    assert lower == []


def test_what_is_installed_here_is_no_older() -> None:
    old = [
        name
        for name, bounds in ((name, bounds) for (name, _), bounds in required().items())
        if not Requirement(f"{name}{bounds}").specifier.contains(Version(version(name)))
    ]
    assert old == []


def test_no_request_is_judged_by_a_url_that_its_host_header_is_a_part_of() -> None:
    none(
        f"{m.where}:{number}: request.url is put together from what a stranger says: use the path"
        for m in modules("vpay_tasks.web")
        for number, line in enumerate(m.lines, 1)
        if re.search(r"request\.(url|base_url)\b", line)
    )


def test_the_servers_that_are_needed_are_the_same_for_operators_readers_and_the_doctor() -> None:
    operators = (ROOT / "deploy" / "README.md").read_text("utf-8")
    table = operators.partition("| server | needs |")[2].partition("\n\n")[0]
    needed = dict(re.findall(r"^\| (\w+) \| (\d[\w. ]*) \|", table, re.MULTILINE))
    assert needed.pop("Postgres") == f"{OLDEST_PG} to {NEWEST_PG}"
    assert list(needed) == ["Redis", "Valkey", "RabbitMQ"]
    readers = (ROOT / "README.md").read_text("utf-8")
    assert f"Postgres {OLDEST_PG} to {NEWEST_PG}" in readers
    for server, least in needed.items():
        assert f"{server} {least}+" in readers
