"""The ledger: one row moves an amount from one account to another. Appended to, never changed."""

from __future__ import annotations

from dataclasses import dataclass

from vpay_tasks.errors import InvalidRequest
from vpay_tasks.store import sql

SQL = sql.load(__name__)


@dataclass(frozen=True)
class Book:
    """What came in and where it stands, in one currency, in minor units. `captured` is what
    payer_clearing was debited, `payable` what merchants were credited, `fees` what we were."""

    currency: str
    charges: int
    succeeded: int
    captures: int
    captured: int
    payable: int
    fees: int

    @property
    def lacks_captures(self) -> bool:
        """Charges have succeeded that nothing was posted for; what is posted adds up."""
        return (
            self.captures < self.charges
            and self.captured < self.succeeded
            and self.captured == self.payable + self.fees
        )

    @property
    def balances(self) -> bool:
        """What the rails paid is what was captured, and all of it belongs to somebody."""
        return (
            self.captures == self.charges
            and self.captured == self.succeeded
            and self.captured == self.payable + self.fees
        )


def post_capture(tx: sql.Connection, charge_id: str, *, fee: int = 0) -> bool:
    """Post what a charge brought in, in the transaction in which it succeeded; `fee` is our
    share of it, in minor units. False: nothing was written, for the charge has a capture, has
    not succeeded, or is no larger than the fee."""
    if fee < 0:
        raise InvalidRequest("fee: none or more")
    rows = sql.run(tx, SQL["post_capture"], {"charge_id": charge_id, "fee": fee})
    return ("capture",) in rows


def books(connection: sql.Connection) -> list[Book]:
    """Every currency's book. Reads both tables whole: for a person, never for a scrape."""
    return [
        Book(currency, *(int(figure) for figure in figures))
        for currency, *figures in sql.run(connection, SQL["books"])
    ]
