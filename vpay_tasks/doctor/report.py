"""Findings as text for a person, and as a stable JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from vpay_tasks.doctor.finding import Finding

UNREACHABLE = {"postgres_unreachable", "broker_unreachable"}


def exit_code(findings: Sequence[Finding]) -> int:
    """0 nothing wrong, 69 a server is out of reach, else 1."""
    if any(finding.code in UNREACHABLE for finding in findings):
        return 69
    return 1 if findings else 0


def as_json(findings: Sequence[Finding], at: datetime) -> dict[str, Any]:
    """The same as `as_text`. Keys and codes are only ever added."""
    return {
        "at": at.isoformat(timespec="seconds"),
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity.value,
                "what": finding.what,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }


def as_text(findings: Sequence[Finding], at: datetime) -> str:
    """Two lines a finding: what, and what to type."""
    when = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    if not findings:
        return f"Nothing wrong at {when}."
    number = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
    lines = [f"{number} at {when}, the worst first."]
    for finding in findings:
        lines += ["", f"{finding.severity.value:<5}  {finding.what}", f"     → {finding.remedy}"]
    return "\n".join(lines)
