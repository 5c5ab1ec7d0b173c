"""A stranger's rail with a bug: it raises what its callbacks say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.rails.example_rail import Parrot, ParrotTable
from vpay_tasks.config import WindowsTable, checked
from vpay_tasks.rails.port import Named


class Brittle(Parrot):
    code = "brittle"

    def parse_callback(self, body: bytes) -> Named:
        raise KeyError(body)


def from_settings(
    raw: Mapping[str, Any], windows: WindowsTable, faults: list[str]
) -> Brittle | None:
    table = checked(ParrotTable, raw, "rails.brittle", faults)
    return None if table is None else Brittle(table, windows)
