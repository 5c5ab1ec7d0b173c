"""What the tests ask the kernel about processes."""

from __future__ import annotations

import os
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z"


def descendants(pid: int) -> set[tuple[int, str]]:
    """Every process below `pid`: (pid, start time), since numbers are used again."""
    below: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            below.setdefault(int(stat[1]), []).append((int(entry.name), stat[19]))
    found: set[tuple[int, str]] = set()
    waiting = [pid]
    while waiting:
        children = below.get(waiting.pop(), [])
        found.update(children)
        waiting += [child for child, _ in children]
    return found


def left(processes: set[tuple[int, str]]) -> list[str]:
    """Those that still run, by their command lines."""
    found = []
    for pid, started in processes:
        stat = _stat(pid)
        if stat is not None and stat[19] == started and stat[0] != "Z":
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            found.append(f"{pid} {words.decode(errors='replace')}")
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name: state, parent, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def command_lines() -> list[str]:
    """Of every process that can be seen."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                raw = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            lines.append(raw.replace(b"\0", b" ").decode(errors="replace"))
    return lines


def with_path(*folders: Path) -> dict[str, str]:
    """Our environment, and these folders before whatever PYTHONPATH already names."""
    names = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(name for name in names if name)}
