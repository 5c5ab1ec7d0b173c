"""A rail's callback is a hint: it has the rail asked soon. It moves no state."""

from __future__ import annotations

from enum import StrEnum

from vpay_tasks.core import kinds
from vpay_tasks.core.charge import State
from vpay_tasks.rails.port import ByKey, ByReference, Named
from vpay_tasks.store import charges, jobs, patience
from vpay_tasks.store.db import Connection, Database


class Outcome(StrEnum):
    """What became of a callback."""

    PULLED = "pulled"
    """The charge's poll was written, or comes sooner now."""
    REPEATED = "repeated"
    """The rail is asked by then anyway: a second callback, or a poll that is due."""
    OVER = "over"
    """The charge has succeeded; nothing is asked any more."""
    UNKNOWN = "unknown"
    """No such charge: another system's, forged, or here before its charge was committed. Then
    the poll finds out."""


def take(db: Database, provider_code: str, named: Named, *, within: float) -> Outcome:
    """Have the rail asked about what a callback names: at once, or `callback_floor` seconds
    after the last ask. Waits at most `within` seconds for a connection, and then for a lock.
    Raises Storage.

    What is unknown costs one look-up by index, what is repeated three reads; neither locks
    nor writes.
    """
    with db.connection(patience=within) as connection:
        charge_id = _find(connection, provider_code, named)
        if charge_id is None:
            return Outcome.UNKNOWN
        if (outcome := _standing(db, connection, charge_id)) is not None:
            return outcome
    with db.transaction(patience=within) as tx:
        patience.wait_at_most(tx, within)
        # An ask is noted before or after all of this, never in between: with an instant read
        # before it, and the job moved behind it, the rail would be asked twice.
        charges.lock(tx, charge_id)
        return _pull(db, tx, charge_id)


def _find(connection: Connection, provider_code: str, named: Named) -> str | None:
    match named:
        case ByReference(reference):
            return charges.find_by_reference(connection, provider_code, reference)
        case ByKey(key):
            return charges.find_by_callback_key(connection, provider_code, key)


def _standing(db: Database, connection: Connection, charge_id: str) -> Outcome | None:
    """What there is no need to write anything for."""
    floor = db.windows.callback_floor
    state, wait = charges.next_ask(connection, charge_id, floor=floor, window=db.windows.recovery)
    if state is State.SUCCEEDED:
        return Outcome.OVER
    key = kinds.poll_key(charge_id)
    stands = jobs.stands_by(connection, key, floor=floor, wait=wait, adding=_recheck(state))
    return Outcome.REPEATED if stands else None


def _pull(db: Database, tx: Connection, charge_id: str) -> Outcome:
    floor = db.windows.callback_floor
    state, wait = charges.next_ask(tx, charge_id, floor=floor, window=db.windows.recovery)
    if state is State.SUCCEEDED:
        return Outcome.OVER
    key, adding = kinds.poll_key(charge_id), _recheck(state)
    payload = {"charge_id": charge_id, **adding}
    job = jobs.enqueue(tx, kinds.POLL_CHARGE, payload, dedupe_key=key, delay=wait)
    if not job.inserted and not jobs.pull_forward(tx, key, floor=floor, wait=wait, adding=adding):
        return Outcome.REPEATED
    if wait <= 0:
        # Only "look now": a hint with the job's key would pull it forward without a floor.
        tx.hints.add("")
    return Outcome.PULLED


def _recheck(state: State) -> dict[str, bool]:
    """A failed charge is asked about once more, so that a rail that changed its mind is seen."""
    return {"recheck": True} if state is State.FAILED else {}
