"""Jobs as their producers and runners see them: enqueue, nudge, start, release."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from vpay_tasks.core.kinds import kind_of
from vpay_tasks.core.task import Kind, Task
from vpay_tasks.errors import Internal, InvalidRequest
from vpay_tasks.store import sql
from vpay_tasks.store.leases import Lease

SQL = sql.load(__name__)

PAYLOAD_MAX: Final = 65_536
"""Bytes of UTF-8 JSON. A job carries ids; what is larger belongs in a table of its own."""


@dataclass(frozen=True)
class Enqueued:
    """`inserted` is False when a job with that dedupe key stood already; then `id` is that
    job's, or None if another transaction is just writing or finishing it."""

    id: int | None
    inserted: bool


class StartedJob(NamedTuple):
    """A row that this process may run: its lease is the run token it was started with."""

    id: int
    lease: UUID
    kind: str
    queue: str
    payload: dict[str, Any]
    failures: int
    crashes: int
    unknown_for: float
    """Seconds since a worker first met the kind without knowing it; 0 if none did."""


def enqueue(
    tx: sql.Connection,
    kind: str | Kind | Task,
    payload: dict[str, Any],
    *,
    dedupe_key: str | None = None,
    delay: float = 0.0,
    priority: int | None = None,
    lane: str | None = None,
) -> Enqueued:
    """Write a job in the caller's transaction, due `delay` seconds from its beginning.

    A job whose `dedupe_key` stands already is left as it is. This waits for an uncommitted
    write of the same key: keep transactions that use one short. Raises InvalidRequest for a
    payload that isn't a JSON object of at most 64 KiB, or holds NaN or NUL.
    """
    kind = kind_of(kind)
    text = payload_json(payload)
    if not 0 <= delay <= 366 * 86_400:
        raise InvalidRequest(f"delay={delay!r}: 0 to 366 days, in seconds")
    if priority not in (None, 0, 1, 2, 3):
        raise InvalidRequest(f"priority={priority!r}: 0 (first) to 3")
    params = {
        "queue": kind.queue,
        "kind": kind.name,
        "dedupe_key": _short(dedupe_key, "dedupe_key"),
        "payload": text,
        "priority": kind.priority if priority is None else priority,
        "lane": _short(lane if lane is not None else kind.lane, "lane"),
        "delay": delay,
    }
    try:
        rows = sql.run(tx, SQL["enqueue"], params)
    except Internal as error:
        if not sql.is_bad_data(error):
            raise
        # What JSON spells in 64 KiB may fill more as the database stores it (1e308, say).
        raise InvalidRequest(f"the job can't be stored: {error}") from error
    if rows:
        if delay <= 0 and (hints := getattr(tx, "hints", None)) is not None:
            hints.add("")
        return Enqueued(rows[0][0], inserted=True)
    assert dedupe_key is not None
    return Enqueued(find_by_key(tx, dedupe_key), inserted=False)


def find_by_key(connection: sql.Connection, dedupe_key: str) -> int | None:
    """The id of the job that holds `dedupe_key`, parked ones included."""
    rows = sql.run(connection, SQL["find_by_key"], {"dedupe_key": dedupe_key})
    return rows[0][0] if rows else None


def payload_json(payload: object) -> str:
    """`payload` as the JSON text to store. Raises InvalidRequest before anything is sent."""
    if not isinstance(payload, dict) or not all(isinstance(key, str) for key in payload):
        raise InvalidRequest("a job's payload is an object with string keys")
    try:
        text = json.dumps(payload, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the payload is not JSON: {error}") from None
    if _holds_nul(payload):
        raise InvalidRequest("the payload holds a NUL character, which Postgres can't store")
    if size > PAYLOAD_MAX:
        raise InvalidRequest(f"the payload has {size} bytes, {PAYLOAD_MAX} at most: store an id")
    return text


def pull_forward(
    connection: sql.Connection,
    dedupe_key: str,
    *,
    floor: float = 0.0,
    wait: float = 0.0,
    adding: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Make the job of `dedupe_key` due in `wait` seconds, unless it is due by then anyway; a
    running one comes back at most `floor` seconds after its settle. `adding` is put into its
    payload. Whether anything was changed.

    For a rate of one run per `floor`, `wait` is what is left of it since the last one.
    """
    params = _nudge(dedupe_key, floor, wait, adding)
    return bool(sql.run(connection, SQL["pull_forward"], params))


def stands_by(
    connection: sql.Connection,
    dedupe_key: str,
    *,
    floor: float = 0.0,
    wait: float = 0.0,
    adding: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Whether a job holds `dedupe_key` and `pull_forward` would change nothing."""
    rows = sql.run(connection, SQL["stands_by"], _nudge(dedupe_key, floor, wait, adding))
    return bool(rows and rows[0][0])


def _nudge(
    dedupe_key: str, floor: float, wait: float, adding: Mapping[str, Any]
) -> dict[str, object]:
    text = payload_json(dict(adding))
    return {"dedupe_key": dedupe_key, "floor": floor, "wait": wait, "adding": text}


def unpark(tx: sql.Connection, dedupe_key: str) -> bool:
    """Have the parked job of `dedupe_key` run now; whether there was one."""
    found = bool(sql.run(tx, SQL["unpark"], {"dedupe_key": dedupe_key}))
    if found and (hints := getattr(tx, "hints", None)) is not None:
        hints.add("")
    return found


def wake(connection: sql.Connection) -> None:
    """Hint to every dispatcher that listens: look now. Only on an autocommit connection."""
    sql.run(connection, SQL["wake"])


def listen(connection: sql.Connection) -> None:
    """Have this connection receive the hints. Scan once afterwards: earlier ones are gone."""
    sql.run(connection, SQL["listen"])


def start(
    connection: sql.Connection,
    claims: Sequence[Lease],
    *,
    run: UUID,
    worker: str,
    run_lease: float,
    known: list[str],
) -> list[StartedJob | None]:
    """Swap the tokens in `claims` (id, and the token its row must carry) for `run`; for each
    what it started. None: its row carries another token, since a copy of the message, or the
    reaper, was first. Of two that are alike one gets the row."""
    rows = sql.run(
        connection,
        SQL["start"],
        {
            "ids": sql.array([id_ for id_, _ in claims]),
            "leases": sql.array([lease.hex for _, lease in claims]),
            "run": run,
            "worker": worker,
            "run_lease": run_lease,
            "known": known,
        },
    )
    started: list[StartedJob | None] = [None] * len(claims)
    for place, id_, *rest in rows:
        started[place - 1] = StartedJob(id_, run, *rest)
    return started


def release(connection: sql.Connection, leases: dict[int, UUID]) -> list[int]:
    """Free the rows that still carry these tokens; the ids that did."""
    params = {"ids": list(leases), "leases": list(leases.values())}
    return [row[0] for row in sql.run(connection, SQL["release"], params)]


def adopt_unknown(connection: sql.Connection, kinds: list[str]) -> list[int]:
    """Un-park rows of these kinds that were parked as unknown; up to 500 ids."""
    return [row[0] for row in sql.run(connection, SQL["adopt_unknown"], {"kinds": kinds})]


def _holds_nul(value: object) -> bool:
    """Whether a string in it holds the character itself; its six-character spelling may."""
    match value:
        case str():
            return "\x00" in value
        case dict():
            return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
        case list() | tuple():
            return any(map(_holds_nul, value))
        case _:
            return False


def _short(name: str | None, what: str) -> str | None:
    if name is None:
        return None
    if not (1 <= len(name) <= 255) or not name.isprintable():
        raise InvalidRequest(f"{what}={name!r}: 1 to 255 printable characters")
    return name
