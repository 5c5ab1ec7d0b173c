"""What an attempt leaves behind: on its delivery, in the log, and about its endpoint.

A circuit is counted across deliveries and processes, in the lane's row, by the transaction
of the record: only attempts that got no HTTP answer write that row, and the first answer
after them.
"""

from __future__ import annotations

from vpay_tasks.errors import Severity
from vpay_tasks.store import deliveries, lanes
from vpay_tasks.store.db import Database
from vpay_tasks.store.deliveries import Attempt, Delivery, State
from vpay_tasks.store.lanes import Opened
from vpay_tasks.telemetry import alert, count, say


def record(
    db: Database, found: Delivery, attempt: Attempt, *, state: State, delay: float | None = None
) -> bool:
    """Write the attempt down, and move the delivery to `state` (`delay`: seconds to its next
    attempt). False: it came too late to count. Raises Storage."""
    if attempt.status is None and attempt.posted:
        with db.transaction() as tx:
            opened = lanes.note_silence(
                tx, found.merchant_id, found.endpoint_id, begun=attempt.begun
            )
            recorded = deliveries.record(tx, found.id, attempt, state=state, delay=delay)
        _tell_opened(found, opened)
    else:
        with db.connection() as connection:
            recorded = deliveries.record(connection, found.id, attempt, state=state, delay=delay)
    if recorded.closed:
        tell_closed(found)
    if recorded.counted and state == "exhausted":
        _tell_exhausted(db, found, attempt)
    return recorded.counted


def tell(
    severity: Severity,
    sentence: str,
    action: str,
    found: Delivery,
    **fields: float | str | None,
) -> None:
    """Alert about one delivery."""
    alert(severity, sentence, action=action, **_names(found), **fields)


def tell_closed(found: Delivery) -> None:
    tell(Severity.WARN, "an endpoint answers again", "endpoint_circuit_closed", found)


def _tell_opened(found: Delivery, opened: Opened | None) -> None:
    match opened:
        case None:
            return
        case Opened(trips=1):
            severity, sentence = Severity.ERROR, "an endpoint is silent; its deliveries wait"
            tell(severity, sentence, "endpoint_circuit_open", found, seconds=opened.seconds)
        case _:
            say(
                Severity.WARN,
                "an endpoint is still silent; its deliveries wait on",
                action="endpoint_circuit_still_open",
                **_names(found),
                trips=opened.trips,
                seconds=opened.seconds,
            )


def _tell_exhausted(db: Database, found: Delivery, attempt: Attempt) -> None:
    """Each is a line, the first of an endpoint's in a day an alert: an endpoint that is down
    gives up thousands for one reason. Behind the record's commit, since this locks the lane:
    if the process dies in between, the next one alerts."""
    count("deliveries_exhausted")
    with db.connection() as connection:
        first = lanes.first_to_tell(connection, found.merchant_id, found.endpoint_id)
    say_or_alert = alert if first else say
    say_or_alert(
        Severity.ERROR,
        "a delivery is exhausted",
        action="delivery_exhausted",
        **_names(found),
        status=attempt.status,
    )


def _names(found: Delivery) -> dict[str, str]:
    return {
        "delivery_id": found.id,
        "event_id": found.event_id,
        "merchant": found.merchant_id,
        "endpoint": found.endpoint_id,
    }
