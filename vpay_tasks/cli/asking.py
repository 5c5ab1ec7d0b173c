"""What commands about webhooks share: the database, and times as people write them."""

from __future__ import annotations

import difflib
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from vpay_tasks import config, parts
from vpay_tasks.config import Settings
from vpay_tasks.core import kinds
from vpay_tasks.core.events import EventType
from vpay_tasks.errors import InvalidRequest, NotFound
from vpay_tasks.store import clock, migrate
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks.endpoints import Endpoint, Endpoints

_AGO: Final = re.compile(r"([0-9]{1,6})(s|min|h|d)", re.ASCII)
_UNITS: Final = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
_FAR: Final = timedelta(days=36_500)
_TYPES: Final = tuple(kind.value for kind in EventType)


@contextmanager
def opened(word: str) -> Iterator[tuple[Settings, Database]]:
    """The settings and their database, checked to be migrated; `word` is the command."""
    settings = config.load()
    database = parts.database(settings, application=f"vpay-tasks {word}", size=2)
    try:
        with database.connection() as connection:
            migrate.require_current(connection)
        yield settings, database
    finally:
        database.close()


def endpoint(merchant_id: str, endpoint_id: str, settings: Settings) -> Endpoint:
    """The endpoint of the settings. Raises NotFound with the one that is named nearly so."""
    endpoints = Endpoints(settings)
    found = endpoints.get(merchant_id, endpoint_id)
    if found is None:
        lane, known = kinds.endpoint_lane(merchant_id, endpoint_id), endpoints.all()
        near = difflib.get_close_matches(lane, [one.lane for one in known], n=1)
        hint = f"did you mean {near[0]}?" if near else "`vpay-tasks endpoints list` has them"
        raise NotFound(f"no endpoint {lane} in the settings: {hint}")
    return found


def instant(text: str | None, db: Database) -> datetime | None:
    """`90min`, `36h`, `7d` ago by the database's clock, or an ISO instant with its zone.
    Raises InvalidRequest."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        back = min(timedelta(**{_UNITS[ago[2]]: int(ago[1])}), _FAR)
        with db.connection() as connection:
            return clock.now(connection) - back
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):  # the year 1 of a zone east of here is before all years
        pass
    raise InvalidRequest(
        f"--since {text!r}: a time ago (90min, 36h, 7d), or an instant with its zone"
        " (2026-03-01T08:15:00+00:00)"
    )


def types(named: list[str] | None) -> tuple[str, ...] | None:
    """The event types that `--type` names, `payment_intent.*` spelt out. Raises
    InvalidRequest for one that no event has."""
    if not named:
        return None
    found: list[str] = []
    for name in named:
        family = name[:-1] if name.endswith(".*") else None
        fitting = [t for t in _TYPES if t == name or (family and t.startswith(family))]
        if not fitting:
            raise InvalidRequest(f"--type {name!r}: no event has it; known: {', '.join(_TYPES)}")
        found += fitting
    return tuple(dict.fromkeys(found))


def screen() -> int | None:
    """How many characters a line of the terminal has; None where nobody looks on: what goes
    into a file or through grep keeps one line for one thing."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def hung(lead: str, text: str, width: int | None) -> str:
    """`text` behind `lead`, and where it is wider than the screen under its own beginning. No
    word is broken: a reference is copied whole."""
    if width is None:
        return f"{lead}{text}"
    return textwrap.fill(
        text,
        max(width, len(lead) + 20),
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )


def utc(at: datetime) -> str:
    """An instant for a person, whatever the session's time zone was."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def plain(facts: dict[str, Any]) -> dict[str, Any]:
    """`facts` for JSON: instants as ISO text, in UTC."""
    return {
        key: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
        for key, value in facts.items()
    }
