"""Payment rails by their code."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from vpay_tasks.config import WindowsTable
from vpay_tasks.rails import mtn_momo
from vpay_tasks.rails.port import RailPort

Factory = Callable[[Mapping[str, Any], WindowsTable, list[str]], RailPort | None]

RAILS: Final[dict[str, Factory]] = {mtn_momo.CODE: mtn_momo.from_settings}
"""`[rails.<code>]` → (its table, windows, faults) → the adapter, or None with its faults."""


def build(
    tables: Mapping[str, Mapping[str, Any]], windows: WindowsTable, faults: list[str]
) -> dict[str, RailPort]:
    """The adapters of the settings' `[rails.*]`; what is wrong is appended to `faults`."""
    built: dict[str, RailPort] = {}
    for code, table in tables.items():
        factory = RAILS.get(code)
        if factory is None:
            near = difflib.get_close_matches(code, RAILS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(RAILS))}"
            faults.append(f"rails.{code}: no such rail; {hint}")
        elif (rail := factory(table, windows, faults)) is not None:
            built[code] = rail
    return built
