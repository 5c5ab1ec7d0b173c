"""One finding, and the words that findings are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vpay_tasks.errors import Severity, sanitise
from vpay_tasks.store import vitals

RANK: Final = (Severity.PAGE, Severity.ERROR, Severity.WARN, Severity.INFO)


@dataclass(frozen=True)
class Finding:
    """`code` is stable; `what` and `remedy` are for people."""

    code: str
    severity: Severity
    what: str
    remedy: str


def named(application: str | None, pid: int | None) -> str:
    return f"{sanitise(application or 'A session without a name')} (pid {pid})"


def many(number: int, one: str, many: str | None = None) -> str:
    """`3 jobs are`, `1 job is`; without the verb where a plural of its own is given."""
    if many is not None:
        return f"{number} {one if number == 1 else many}"
    return f"1 {one} is" if number == 1 else f"{number} {one}s are"


def counted(number: int, one: str) -> str:
    """`many` of a figure that counting stopped at."""
    return ("At least " if number >= vitals.CAP else "") + many(number, one)


def listed(names: Sequence[str] | set[str] | dict[str, int]) -> str:
    """Up to three of `names`, sorted."""
    known = sorted(names)
    more = f" and {len(known) - 3} more" if len(known) > 3 else ""
    return ", ".join(sanitise(name) for name in known[:3]) + more


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + sanitise(text).replace("'", "''") + "'"
