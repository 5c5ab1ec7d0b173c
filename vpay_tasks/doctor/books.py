"""Conservation: what came in, what was posted, and whose it is are one sum in each currency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from vpay_tasks.doctor.finding import Finding
from vpay_tasks.errors import Severity
from vpay_tasks.store.ledger import Book

LOOK_S: Final = 20.0
"""For reading both tables whole: a million payments take under two seconds. Lower: a cold disk
hides a finding; higher: the doctor keeps a person waiting who came for something else."""

POST_MISSING: Final = "SELECT vpay.post_missing_captures();"
SUMS: Final = (
    "SELECT currency, sum(amount) FROM vpay.charges WHERE state = 'succeeded' GROUP BY currency;"
    " SELECT currency, debit, credit, sum(amount) FROM vpay.ledger_entries GROUP BY 1, 2, 3;"
)
DIFFERENCES: Final = (
    "SELECT charges.id, charges.state, charges.amount, sum(entries.amount) FROM vpay.charges"
    " LEFT JOIN vpay.ledger_entries AS entries ON entries.charge_id = charges.id"
    " GROUP BY charges.id HAVING coalesce(sum(entries.amount), 0) <>"
    " CASE WHEN charges.state = 'succeeded' THEN charges.amount ELSE 0 END;"
)
"""For a person at a psql prompt; never executed from here."""


def kept(books: Sequence[Book] | None) -> Iterator[Finding]:
    """None: they could not be read within LOOK_S."""
    if books is None:
        yield Finding(
            "books_unread",
            Severity.WARN,
            f"Charges and ledger could not be compared within {LOOK_S:.0f} s: they are large, or"
            " somebody has locked one of them. Compare them by hand when it is quiet.",
            SUMS,
        )
        return
    for book in books:
        if book.balances:
            continue
        sums = (
            f"In {book.currency}, in minor units, {book.charges} charges brought in"
            f" {book.succeeded}, {book.captures} captures posted {book.captured}, and"
            f" {book.payable} payable and {book.fees} in fees were credited"
        )
        if book.lacks_captures:
            yield Finding(
                "captures_missing",
                Severity.ERROR,
                f"{sums}: captures are missing, of a release without a ledger.",
                POST_MISSING,
            )
        else:
            yield Finding(
                "books_unbalanced", Severity.PAGE, f"{sums}: that is not one sum.", DIFFERENCES
            )
