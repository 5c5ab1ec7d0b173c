"""The one thing that travels through a broker: bare ids and the token that starts them.

A broker message is a hint. Whoever can write to the broker can forge one; it starts
nothing, since a start compares the token with the row's. So what can't be read exactly is
refused and counted, never guessed at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from vpay_tasks.core.task import BATCH_MAX

VERSION: Final = 1
SIZE_MAX: Final = 4_096
"""Bytes. 100 ids of 19 digits need about half of it."""


class Refused(Exception):
    """Not a message of ours; the text says what is wrong and quotes nothing of it."""


@dataclass(frozen=True)
class Envelope:
    """Jobs of one queue that one claim gave one token."""

    queue: str
    ids: tuple[int, ...]
    token: UUID

    @property
    def claims(self) -> dict[int, UUID]:
        return dict.fromkeys(self.ids, self.token)


def encode(envelope: Envelope) -> bytes:
    """The wire form: `{"v":1,"q":queue,"ids":[…],"t":"<claim token>"}`."""
    body = {
        "v": VERSION,
        "q": envelope.queue,
        "ids": list(envelope.ids),
        "t": str(envelope.token),
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode(raw: bytes, queue: str) -> Envelope:
    """The envelope in `raw`, which came out of `queue`, byte for byte as `encode` writes it.
    Raises Refused."""
    if len(raw) > SIZE_MAX:
        raise Refused("oversized")
    try:
        body: Any = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused("not JSON") from None
    if not isinstance(body, dict) or set(body) != {"v", "q", "ids", "t"}:
        raise Refused("foreign shape")
    if type(body["v"]) is not int or body["v"] != VERSION:
        raise Refused("another version")
    if body["q"] != queue:
        # Its own queue's consumer must settle the bookkeeping of a message: another name
        # would end a worker's thread.
        raise Refused("another queue")
    ids = body["ids"]
    if not isinstance(ids, list) or not 1 <= len(ids) <= BATCH_MAX:
        raise Refused("no ids, or too many")
    if not all(type(id_) is int and 0 < id_ < 2**63 for id_ in ids) or len(set(ids)) != len(ids):
        raise Refused("ids that can't be")
    if not isinstance(body["t"], str):
        raise Refused("no token")
    try:
        token = UUID(body["t"])
    except ValueError:
        raise Refused("no token") from None
    found = Envelope(queue, tuple(ids), token)
    if encode(found) != raw:
        # A key twice, UTF-16, a token without its hyphens: what two readers may read differently.
        raise Refused("not as it is written")
    return found
