"""Endpoints' lanes: pauses, circuits, caps, and when somebody was told what (spec 3).

A row is an exception: an endpoint that was never paused, silent or given a cap has none.
`changed_at` is a person's or a receiver's doing only; what the circuit and the settings write
leaves it be, or a resume would look older than the 410 it answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from vpay_tasks.core import kinds
from vpay_tasks.store import sql

SQL = sql.load(__name__)

SILENT_MAX: Final = 5
"""Attempts in a row without any HTTP answer that open a circuit. Lower: a receiver's restart
opens it; higher: more threads wait for a dead host first."""
OPEN_S: Final = 60.0
"""How long it stays open at first; twice as long after each silent probe. Lower: a dead host
is asked more often than its own ladder would; higher: a restart costs more than it took."""
OPEN_MAX_S: Final = 900.0
"""The longest. Higher: a receiver that came back waits longer for its backlog."""
TOLD_EVERY_S: Final = 86_400.0
"""Between two alerts about deliveries given up at one endpoint. Lower: an outage of two days
alerts all day; higher: the next outage goes untold."""


COUNTED_MAX: Final = 10_000
"""Pending deliveries counted of one endpoint: some milliseconds."""


class Pause(Enum):
    """What became of the wish to pause an endpoint."""

    PAUSED = "paused"
    """By this very call: the transition, to be alerted."""
    ALREADY = "already"
    RESUMED_SINCE = "resumed_since"
    """Somebody resumed it after the attempt had begun; it stays resumed."""


@dataclass(frozen=True)
class Opened:
    """A circuit that this very silence opened, or kept open."""

    trips: int
    """1: the transition. More: a probe found it as silent as before."""
    seconds: float
    """Until the next probe."""


@dataclass(frozen=True)
class Standing:
    """An endpoint, for a person. Ages and times are seconds by the database's clock."""

    merchant_id: str
    endpoint_id: str
    paused: bool
    changed_by: str | None
    reason: str | None
    changed_age: float | None
    trips: int
    circuit_for: float | None
    """Until the next probe; not positive: it is due."""
    pending: int
    """Up to COUNTED_MAX, which then means "at least"."""
    oldest_age: float | None
    last_status: int | None


def pause_gone(
    tx: sql.Connection,
    merchant_id: str,
    endpoint_id: str,
    *,
    begun: float,
    changed_by: str,
    reason: str,
) -> Pause:
    """Cap the endpoint's lane at nothing, unless it was resumed after `begun` (Unix seconds
    of the database's clock). In one transaction with the record that it goes with."""
    wish = {
        **_lane(merchant_id, endpoint_id),
        "begun": begun,
        "changed_by": changed_by,
        "reason": reason,
    }
    if sql.run(tx, SQL["pause_gone"], wish):
        return Pause.PAUSED
    return Pause.ALREADY if is_paused(tx, merchant_id, endpoint_id) else Pause.RESUMED_SINCE


def pause(
    connection: sql.Connection, merchant_id: str, endpoint_id: str, *, changed_by: str, reason: str
) -> bool:
    """An operator's pause. False: it was paused before, by whom stays written."""
    wish = {**_lane(merchant_id, endpoint_id), "changed_by": changed_by, "reason": reason}
    return bool(sql.run(connection, SQL["pause"], wish))


def resume(
    connection: sql.Connection, merchant_id: str, endpoint_id: str, *, changed_by: str
) -> bool:
    """End a pause, and close the circuit. False: there was neither."""
    wish = {**_lane(merchant_id, endpoint_id), "changed_by": changed_by}
    return bool(sql.run(connection, SQL["resume"], wish))


def is_paused(connection: sql.Connection, merchant_id: str, endpoint_id: str) -> bool:
    """Whether the endpoint's lane is paused."""
    rows = sql.run(connection, SQL["is_paused"], _lane(merchant_id, endpoint_id))
    return bool(rows and rows[0][0])


def note_silence(
    tx: sql.Connection, merchant_id: str, endpoint_id: str, *, begun: float
) -> Opened | None:
    """Count an attempt that began at `begun` (Unix seconds of the database's clock) and got
    no HTTP answer. What it opened, if it did. Before its record, in the same transaction."""
    params = {
        **_lane(merchant_id, endpoint_id),
        "begun": begun,
        "silent_max": SILENT_MAX,
        "open": OPEN_S,
        "open_max": OPEN_MAX_S,
    }
    rows = sql.run(tx, SQL["note_silence"], params)
    return Opened(*rows[0]) if rows and rows[0][0] > 0 else None


def first_to_tell(connection: sql.Connection, merchant_id: str, endpoint_id: str) -> bool:
    """Whether the caller is the one to alert that deliveries to this endpoint are given up."""
    params = {**_lane(merchant_id, endpoint_id), "every": TOLD_EVERY_S}
    return bool(sql.run(connection, SQL["first_to_tell"], params))


def standing(connection: sql.Connection, endpoints: Sequence[tuple[str, str]]) -> list[Standing]:
    """How each of these (merchant, endpoint) stands, in their order."""
    params = {
        "queue": kinds.DELIVER_WEBHOOK.queue,
        "merchant_ids": [merchant for merchant, _ in endpoints],
        "endpoint_ids": [endpoint for _, endpoint in endpoints],
        "cap": COUNTED_MAX,
    }
    return [Standing(*row) for row in sql.run(connection, SQL["standing"], params)]


def waiting_endpoints(connection: sql.Connection) -> list[tuple[str, str]]:
    """The (merchant, endpoint) of whatever is pending; the first thousand."""
    return [(m, e) for m, e in sql.run(connection, SQL["waiting_endpoints"])]


def set_caps(tx: sql.Connection, caps: Mapping[str, int]) -> None:
    """Make the lanes' caps those of `caps` (lane → cap, see Endpoints.caps); a lane that is
    not named falls back to its queue's default. Pauses and circuits stay as they are."""
    lanes = sorted(caps)
    params = {
        "queue": kinds.DELIVER_WEBHOOK.queue,
        "lanes": lanes,
        "caps": [caps[lane] for lane in lanes],
    }
    sql.run(tx, SQL["set_caps"], params)


def _lane(merchant_id: str, endpoint_id: str) -> dict[str, str]:
    return {
        "queue": kinds.DELIVER_WEBHOOK.queue,
        "lane": kinds.endpoint_lane(merchant_id, endpoint_id),
    }
