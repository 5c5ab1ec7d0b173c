"""The report as a person reads it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vpay_sandbox.report import Report, Row, percentile

# Of one fault there may be a finding per payment; the rest is in the count.
SHOWN = 12
# Columns of a terminal below which less is said: 80 are enough then.
NARROW = 98

LEGEND = "unresolved: no word of the rail has ended it; no money taken, a person is told"


def show(console: Console, report: Report, folder: Path) -> None:
    """Outcomes, times, and what is wrong. `folder` has the logs and journals."""
    console.print(_outcomes(report, narrow=console.width < NARROW))
    console.print(LEGEND)
    console.print()
    if report.kills:
        console.print(_kills(report))
        console.print()
    console.print(_times(report))
    console.print()
    if report.agrees:
        console.print(
            "[green]The database, the rail and the receiver agree.[/green]"
            f" {report.signatures_ok} deliveries verified with the stripe package."
        )
        console.print(
            f"Calls to the rail beyond the first of a payment: {report.exposure}."
            " Money moved twice: never."
        )
        return
    number = len(report.findings)
    count = f"{number} finding" + ("" if number == 1 else "s")
    console.print(f"[red]The three journals do not agree: {count}.[/red]")
    for finding in report.findings[:SHOWN]:
        console.print(f"  - {escape(str(finding))}", soft_wrap=True)
    if number > SHOWN:
        console.print(f"  … and {number - SHOWN} more.")
    console.print(f"Logs and journals: {escape(str(folder))}", soft_wrap=True)


def _outcomes(report: Report, *, narrow: bool) -> Table:
    table = _table("payments that met", ("count", "right"))
    if not narrow:
        table.add_column("expected", no_wrap=True)
    table.add_column("got")
    if not narrow:
        table.add_column("settled in", justify="right")
    table.add_column("verified", justify="right")
    for row in report.rows:
        cells = [row.scenario, str(row.count)]
        if narrow:
            cells.append(_got(row, row.expected))
        else:
            expected = row.expected.removeprefix("failed ")
            cells += [expected, _got(row, "same"), _seconds(percentile(row.settle_ms, 50))]
        # What the receiver verified, of the deliveries that these payments make.
        table.add_row(*cells, f"{row.verified}/{row.wanted}")
    return table


def _got(row: Row, same: str) -> str:
    if set(row.got) == {row.expected}:
        return escape(same)
    words = (f"{count} {outcome}" for outcome, count in sorted(row.got.items()))
    return "[red]" + escape(", ".join(words)) + "[/red]"


def _kills(report: Report) -> Table:
    table = _table(
        "killed with kill -9",
        ("inside", "left"),
        ("of order", "right"),
        ("which then", "left"),
        ("money moved", "left"),
    )
    for kill in report.kills:
        inside = "its submission" if kill.what == "confirm" else "a question about it"
        moved = "once" if kill.moved == 1 else f"[red]{kill.moved} times[/red]"
        table.add_row(kill.program, inside, kill.order, kill.state, moved)
    return table


def _table(what: str, *columns: tuple[str, Literal["left", "right"]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(what, no_wrap=True)
    for heading, side in columns:
        table.add_column(heading, justify=side, overflow="fold")
    return table


def _times(report: Report) -> Table:
    table = _table(
        "how long it took, all on this machine",
        ("count", "right"),
        ("p50", "right"),
        ("p99", "right"),
    )
    rows: tuple[tuple[str, Collection[float]], ...] = (
        ("confirm → settled (the rail answers as scripted)", report.settle_ms),
        ("settled → first post at the merchant's endpoint", report.post_ms),
        ("settled → answered 2xx (half of them fail twice)", report.accepted_ms),
    )
    for name, values in rows:
        p50, p99 = percentile(values, 50), percentile(values, 99)
        table.add_row(name, str(len(values)), _seconds(p50), _seconds(p99))
    return table


def _seconds(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"
