"""What a debugger or an error report may print of an adapter."""

from __future__ import annotations

from collections.abc import Iterator


def reached(thing: object, depth: int = 5) -> Iterator[object]:
    """`thing` and the objects of this project that it holds, down to `depth`: their reprs are
    ours to keep clean (a dict's, a string's or a library's are not)."""
    if depth == 0 or not type(thing).__module__.startswith(("vpay_tasks", "tests")):
        return
    yield thing
    for held in getattr(thing, "__dict__", {}).values():
        yield from reached(held, depth - 1)
        if isinstance(held, dict):
            for value in held.values():
                yield from reached(value, depth - 1)
