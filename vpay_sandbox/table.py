"""The report as a person reads it."""

from __future__ import annotations

from collections.abc import Collection

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vpay_sandbox.report import Report, Row, percentile

# Of one fault there may be a finding per payment; the rest is in the count.
SHOWN = 12


def show(console: Console, report: Report) -> None:
    """Outcomes, times, and what is wrong."""
    console.print(_outcomes(report))
    console.print(_times(report))
    if report.agrees:
        console.print(
            "[green]The database, the rail and the receiver agree.[/green]"
            f" {report.signatures_ok} deliveries verified with the stripe package."
        )
        return
    number = len(report.findings)
    count = f"{number} finding" + ("" if number == 1 else "s")
    console.print(f"[red]The three journals do not agree: {count}.[/red]")
    for finding in report.findings[:SHOWN]:
        console.print(f"  - {escape(str(finding))}", soft_wrap=True)
    if number > SHOWN:
        console.print(f"  … and {number - SHOWN} more.")


def _outcomes(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    table.add_column("count", justify="right")
    table.add_column("expected", no_wrap=True)
    table.add_column("got", no_wrap=True)
    table.add_column("settled in p50", justify="right")
    table.add_column("verified", justify="right")
    for row in sorted(report.rows, key=lambda row: row.scenario):
        table.add_row(
            row.scenario,
            str(row.count),
            row.expected,
            _got(row),
            _seconds(percentile(row.settle_ms, 50)),
            f"{row.verified}/{row.wanted}",
        )
    return table


def _got(row: Row) -> str:
    if set(row.got) == {row.expected}:
        return "as scripted"
    words = (f"{count} {outcome}" for outcome, count in sorted(row.got.items()))
    return "[red]" + escape(", ".join(words)) + "[/red]"


def _times(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    table.add_column("how long it took, all on this machine", no_wrap=True)
    for heading in ("count", "p50", "p99"):
        table.add_column(heading, justify="right")
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
