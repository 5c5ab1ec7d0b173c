"""What an audit says: findings, a row per scenario, the figures of the last line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and where a person looks next."""

    kind: str
    about: str
    wrong: str
    look: str = ""

    def __str__(self) -> str:
        return f"{self.about}: {self.wrong}" + (f"\n    look at: {self.look}" if self.look else "")


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that the demo killed inside a call about one payment, and what became of that."""

    what: Literal["worker", "confirm"]
    program: str
    order: str
    state: str
    moved: int


@dataclass(slots=True)
class Row:
    """One scenario of the table."""

    scenario: str
    expected: str
    got: Counter[str] = field(default_factory=Counter)
    settle_ms: list[float] = field(default_factory=list)
    verified: int = 0
    wanted: int = 0

    @property
    def count(self) -> int:
        return self.got.total()


@dataclass(slots=True)
class Report:
    """`post_ms`: event written → first post arrived; `accepted_ms`: → first 2xx, ladder and all.
    One entry per (event, endpoint); `settle_ms` one per payment, charge written → event written.
    `exposure`: calls to the rail beyond the first one of each reference.
    """

    payments: int
    as_scripted: int
    events: int
    delivered: int
    signatures_ok: int
    lost: int
    exposure: int
    kills: list[Kill]
    findings: list[Finding]
    rows: list[Row]
    settle_ms: list[float]
    post_ms: list[float]
    accepted_ms: list[float]

    @property
    def agrees(self) -> bool:
        return not self.findings and self.lost == 0

    def as_json(self) -> dict[str, Any]:
        return {
            "payments": self.payments,
            "as_scripted": self.as_scripted,
            "events": self.events,
            "delivered": self.delivered,
            "signatures_ok": self.signatures_ok,
            "lost": self.lost,
            "killed": {
                "workers": sum(kill.what == "worker" for kill in self.kills),
                "confirms": sum(kill.what == "confirm" for kill in self.kills),
            },
            "exposure": self.exposure,
            "settle_to_delivery_ms": {
                "p50": rounded(percentile(self.post_ms, 50)),
                "p99": rounded(percentile(self.post_ms, 99)),
            },
        }


def percentile(values: Collection[float], share: int) -> float | None:
    """Nearest rank: a value that was really seen; None of nothing."""
    if not values:
        return None
    return sorted(values)[max(-(-len(values) * share // 100) - 1, 0)]


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
