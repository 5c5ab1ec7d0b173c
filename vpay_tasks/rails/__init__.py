"""Payment rails by their code."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from vpay_tasks.config import WindowsTable
from vpay_tasks.rails import mtn_momo, orange_money
from vpay_tasks.rails.port import RailPort

Factory = Callable[[Mapping[str, Any], WindowsTable, list[str]], RailPort | None]

RAILS: Final[dict[str, Factory]] = {
    mtn_momo.CODE: mtn_momo.from_settings,
    orange_money.CODE: orange_money.from_settings,
}
"""`[rails.<code>]` → (its table, windows, faults) → the adapter, or None with its faults."""


def build(
    tables: Mapping[str, Mapping[str, Any]], windows: WindowsTable, faults: list[str]
) -> dict[str, RailPort]:
    """The adapters of the settings' `[rails.*]`; what is wrong is appended to `faults`.

    A table with `factory = "package.module:name"` is somebody else's rail: that callable
    gets the rest of the table, as those of RAILS get theirs.
    """
    built: dict[str, RailPort] = {}
    for code, table in tables.items():
        factory = _factory(code, table, faults)
        if factory is None:
            continue
        rest = {key: value for key, value in table.items() if key != "factory"}
        rail = factory(rest, windows, faults)
        if rail is None:
            continue
        if rail.code != code:
            # A charge keeps its rail's own code and is polled by the settings' one.
            faults.append(f"rails.{code}: its adapter's code is {rail.code!r}: name the table so")
            continue
        built[code] = rail
    return built


def _factory(code: str, table: Mapping[str, Any], faults: list[str]) -> Factory | None:
    if "factory" in table:
        return _named(table["factory"], f"rails.{code}.factory", faults)
    if code in RAILS:
        return RAILS[code]
    near = difflib.get_close_matches(code, RAILS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(RAILS))}"
    faults.append(f"rails.{code}: no such rail; {hint} (one of your own needs `factory`)")
    return None


def _named(path: object, where: str, faults: list[str]) -> Factory | None:
    found = re.fullmatch(r"([\w.]+):(\w+)", path) if isinstance(path, str) else None
    if found is None:
        faults.append(f'{where}: write it as "package.module:name"')
        return None
    try:
        made = getattr(importlib.import_module(found[1]), found[2])
    except Exception as error:  # noqa: BLE001 whatever a stranger's module does is its fault
        faults.append(f"{where}: cannot import {found[0]}: {type(error).__name__}: {error}")
        return None
    if not callable(made):
        faults.append(f"{where}: {found[0]} can't be called")
        return None
    factory: Factory = made
    return factory
