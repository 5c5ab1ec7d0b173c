"""Gates: places inside Postgres at which the first session that comes is stopped or refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

SCRIPT: Final = Path(__file__).with_name("gates.sql")
WAITING, TAKEN = 4711, 4712
"""The classes of the gates' advisory locks; TAKEN is held by the one that waits."""

NEXT_REFUSAL: Final = "SELECT last_value + is_called::integer FROM kills.refused"

Connection = psycopg.Connection[tuple[Any, ...]]


def install(connection: Connection) -> None:
    """Once per database."""
    with connection.transaction():
        connection.execute(SCRIPT.read_bytes())


@dataclass(frozen=True)
class Write:
    """One write of one row: `word` is what it does to a row of `kind` (gates.sql), in the
    statement or in the COMMIT that makes it last."""

    kind: str
    word: str
    in_commit: bool = False


class Gate:
    """Closed for the first session that does `write` to what is about `about`. `keeper` is the
    autocommit connection whose lock it waits for; `raises`: an SQLSTATE instead of a wait."""

    def __init__(self, keeper: Connection, write: Write, about: str, raises: str = "") -> None:
        self._keeper = keeper
        self.write = write
        self._open = False
        self._refusal = 0
        with keeper.transaction():
            if raises:
                (self._refusal,) = self._row(
                    "SELECT last_value + is_called::integer FROM kills.refused"
                )
            (self.id,) = self._row(
                "INSERT INTO kills.gates (place, in_commit, kind, about, raises, refusal)"
                " VALUES (%s, %s, %s, %s, %s, %s) RETURNING id",
                write.word, write.in_commit, write.kind, about, raises or None, self._refusal,
            )  # fmt: skip
            keeper.execute("SELECT pg_advisory_lock(%s, %s)", (WAITING, self.id))

    def waiting(self) -> int | None:
        """The backend that waits at it."""
        found = self._keeper.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND classid = %s AND objid = %s AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())",
            (WAITING, self.id),
        ).fetchone()
        return int(found[0]) if found else None

    def refused(self) -> bool:
        """Whether somebody came and was refused."""
        last, called = self._row("SELECT last_value, is_called FROM kills.refused")
        return bool(called and last >= self._refusal)

    def forget(self) -> None:
        """Whoever comes from now on passes; who waits goes on waiting."""
        self._keeper.execute("DELETE FROM kills.gates WHERE id = %s", (self.id,))

    def open(self) -> None:
        """Let the one go that waits."""
        if not self._open:
            self._open = True
            self.forget()
            self._keeper.execute("SELECT pg_advisory_unlock(%s, %s)", (WAITING, self.id))

    def _row(self, query: str, *params: object) -> tuple[Any, ...]:
        row = self._keeper.execute(query.encode(), params).fetchone()
        assert row is not None
        return row


def begin_of_trail(connection: Connection) -> int:
    row = connection.execute("SELECT coalesce(max(seq), 0) FROM kills.trail").fetchone()
    return int(row[0]) if row else 0


def trail(connection: Connection, since: int, kind: str, about: str) -> list[str]:
    """What became of each row of `kind` that is about `about`, a sentence of words each."""
    rows = connection.execute(
        "SELECT string_agg(word, ' ' ORDER BY seq) FROM kills.trail"
        " WHERE seq > %s AND kind = %s AND about = %s GROUP BY row_id ORDER BY min(seq)",
        (since, kind, about),
    )
    return [row[0] for row in rows]
