"""`${NAME}` and `${file:/path}` in the settings' text, so that no secret has to stand there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")


@dataclass
class Filling:
    """Fills values in; remembers where from, and what was missing. A fault names a
    placeholder's key, never its value."""

    env: Mapping[str, str] = field(repr=False)
    faults: list[str]
    files: list[Path] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    """Dotted paths of the values that are a placeholder and nothing else."""
    written: dict[str, str] = field(default_factory=dict, repr=False)
    """What stands in the file itself, by dotted path: its values without what was filled in."""

    def fill(self, value: Any, where: str = "") -> Any:
        """`value`, a part of a parsed file at the dotted path `where`, without placeholders."""
        if isinstance(value, dict):
            inner = ((k, f"{where}.{k}".strip("."), v) for k, v in value.items())
            return {k: self.fill(v, path) for k, path, v in inner}
        if isinstance(value, list):
            return [self.fill(v, f"{where}.{i}") for i, v in enumerate(value)]
        if not isinstance(value, str):
            return value
        if _PLACEHOLDER.fullmatch(value):
            self.keys.add(where)
        self.written[where] = _PLACEHOLDER.sub("", value)
        return _PLACEHOLDER.sub(lambda match: self._found(match.group(1), where), value)

    def _found(self, name: str, where: str) -> str:
        if name.startswith("file:"):
            file = Path(name.removeprefix("file:"))
            self.files.append(file)
            try:
                return file.read_text("utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError) as error:
                self.faults.append(f"{where}: cannot read ${{{name}}}: {type(error).__name__}")
                return ""
        if name not in self.env:
            self.faults.append(f"{where}: the environment has no {name}")
        return self.env.get(name, "")
