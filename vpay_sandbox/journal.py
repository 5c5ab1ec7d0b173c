"""JSON lines that are on the file before anybody hears about what they tell."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class Journal:
    """Appends to `path`; None keeps no journal. One line per entry, `t` in Unix milliseconds."""

    def __init__(self, path: Path | None) -> None:
        self._file = None
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")

    def write(self, kind: str, **fields: Any) -> None:
        """Flushed per line: a stub that is killed keeps all that it answered."""
        with self._lock:
            if self._file is not None:
                entry = {"t": now_ms(), "kind": kind, **fields}
                self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
                self._file.flush()

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def read(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The entries so far, of one kind or all; a last line that is still being written is left."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    entries: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
    return [entry for entry in entries if kind is None or entry["kind"] == kind]
