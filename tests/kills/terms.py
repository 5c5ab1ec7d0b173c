"""What the tables of points are written in."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.kills.places import Fault, InPostgres, Moment

KILL, STOP, CUT, ERROR = Fault.KILL, Fault.STOP, Fault.CUT, Fault.ERROR
WRITTEN, COMMITTING, COMMITTED = Moment.WRITTEN, Moment.COMMITTING, Moment.COMMITTED

GONE: Final = "claim start worker_gone claim start end"
REAPED: Final = "claim start worker_gone claim( claim_expired claim)* start end"
"""Where the row is free at once: whoever reaped it may have claimed it, too, before it died."""
LATE: Final = "claim start run_expired claim( claim_expired claim)* start end"
UNSTARTED: Final = "claim( claim_expired claim)+ start end"
"""A stopped process still takes what its last question to the broker asked for."""
RETRIED: Final = "claim start retry claim start end"
AGAIN: Final = "claim start again claim start end"
OVERRULED: Final = "claim start overruled end"
STRAIGHT: Final = "claim start end"
ONCE: Final = "claim( claim_expired claim)* start( again claim start)* end"
"""What becomes of a job. ONCE leaves room for polls that found nothing yet, and for messages
that somebody had who died."""
BESIDE: Final = (
    "claim( claim_expired claim)*"
    " start( (again|worker_gone|run_expired) claim( claim_expired claim)* start)* end"
)
"""The same for what the harmed process may have run beside."""


def at(kind: str, word: str, moment: Moment) -> partial[InPostgres]:
    """Where somebody does `word` to a row of `kind`."""
    return partial(InPostgres, kind=kind, word=word, moment=moment)
