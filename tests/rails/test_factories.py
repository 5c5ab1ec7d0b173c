"""Rails of somebody else, named in the settings."""

from __future__ import annotations

import sys
import types

import pytest

from tests.rails.example_rail import Parrot, from_settings
from vpay_tasks.config import WindowsTable
from vpay_tasks.rails import build

FACTORY = "tests.rails.example_rail:from_settings"
TABLE = {"factory": FACTORY, "base_url": "https://parrot.example", "api_key": "canary"}


def test_a_factory_gets_the_rest_of_its_table() -> None:
    faults: list[str] = []
    rails = build({"parrot": TABLE}, WindowsTable(), faults)
    assert faults == []
    assert isinstance(rails["parrot"], Parrot)
    assert from_settings({}, WindowsTable(), faults) is None
    assert [fault.partition(":")[0] for fault in sorted(faults)] == [
        "rails.parrot.api_key",
        "rails.parrot.base_url",
    ]


def test_a_rail_must_stand_under_its_own_code() -> None:
    faults: list[str] = []
    assert build({"perroquet": TABLE}, WindowsTable(), faults) == {}
    assert faults == ["rails.perroquet: its adapter's code is 'parrot': name the table so"]


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("nowhere", 'write it as "package.module:name"'),
        (7, 'write it as "package.module:name"'),
        ("os.path:join:x", 'write it as "package.module:name"'),
        ("no_such_module_here:x", "cannot import no_such_module_here:x: ModuleNotFoundError"),
        ("tests.rails.example_rail:nothing", "AttributeError"),
        ("tests.rails.example_rail:CODE", "can't be called"),
        ("broken_rail_for_a_test:x", "cannot import"),
    ],
)
def test_a_factory_that_can_not_be_had_is_a_fault_beside_all_others(
    factory: object, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "broken_rail_for_a_test", types.ModuleType("broken"))
    faults: list[str] = []
    tables = {"parrot": {**TABLE, "factory": factory}, "nope": {}}
    assert build(tables, WindowsTable(), faults) == {}
    first, second = faults
    assert first.startswith("rails.parrot.factory: ")
    assert says in first
    assert second.startswith("rails.nope: no such rail; ")
    assert "factory" in second
