"""A walk through rows in the order of an instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final


@dataclass(frozen=True)
class Place:
    """A row's place in a walk. Many rows may share an instant, so a page ends at an id."""

    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    id: str = ""


FRONT: Final = Place()


@dataclass
class Walked:
    """What a walk came to."""

    moved: int = 0
    whole: bool = True
    """False: it was cut short before the last row."""
