"""The promises I1–I14, asked of a database and of what the outside kept of it.

    install(connection)     before the processes start: triggers that write the schema `audit`
    check(connection, …)    afterwards: "I1" … "I14", each with a sentence per violation

Nothing of it ships, and none of it but its own tests imports what it judges.
"""

from tests.invariants.audit import install
from tests.invariants.check import NAMES, Evidence, check
from tests.invariants.overdue import Bounds, Overdue, overdue

__all__ = ["NAMES", "Bounds", "Evidence", "Overdue", "check", "install", "overdue"]
