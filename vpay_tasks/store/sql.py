"""SQL lives in `.sql` files; this is the one place where it is executed.

A file holds named statements: `-- name: claim`, why-lines, the statement. `run` executes
one, and turns whatever psycopg raises into the tree of `errors` – once, here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from vpay_tasks.errors import (
    AmbiguousCommit,
    Conflict,
    Internal,
    InvalidRequest,
    RoleRefused,
    Severity,
    Storage,
    VpayError,
)
from vpay_tasks.store import standbys
from vpay_tasks.telemetry import say

SLOW_S: Final = 1.0
"""A statement that takes this long is told: every hot one takes milliseconds."""

Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]


@dataclass(frozen=True)
class Statement:
    """One named statement of one file."""

    file: str
    name: str
    text: str
    query: bytes = field(init=False, repr=False)
    """The text as the server reads it, with $1, $2 … – made once: psycopg would take a long
    statement apart again each time that it runs."""
    names: tuple[str, ...] = field(init=False, repr=False)
    """The parameters, in the order of their numbers."""

    def __post_init__(self) -> None:
        names = tuple(dict.fromkeys(_PARAMETER.findall(self.text)))
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", self.text)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "query", numbered.encode())

    def given(self, params: Mapping[str, Any] | None) -> list[Any]:
        """`params` in the order of the numbers."""
        return [params[name] for name in self.names] if params is not None else []


class Statements(dict[str, Statement]):
    """The statements of one file, by name."""


_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"%\((\w+)\)s")


def load(module: str) -> Statements:
    """The statements beside the module `module` (pass `__name__`): jobs.py has jobs.sql."""
    file = f"{module.rsplit('.', 1)[-1]}.sql"
    source = resources.files("vpay_tasks.store").joinpath(file).read_text("utf-8")
    parts = _NAME.split(source)[1:]
    found = Statements()
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise Internal(f"{file}: statement {name!r} stands twice")
        found[name] = Statement(file, name, text.strip())
    return found


def run(
    connection: Connection, statement: Statement, params: Mapping[str, Any] | None = None
) -> list[Row]:
    """Execute `statement` and return its rows (none for one that returns none).

    Raises Storage for whatever time may heal, AmbiguousCommit when the connection broke
    under a statement that commits by itself or its standby was not waited for, Conflict,
    InvalidRequest, Internal.
    """
    begun = time.monotonic()
    commits_itself = connection.info.transaction_status == TransactionStatus.IDLE
    try:
        # The text is a file's, never built at run time. The rows are ours to read, whatever
        # the application has its own connection make of them.
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        with standbys.waited_for(connection, statement.name):
            cursor.execute(statement.query, statement.given(params))
        return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []
    except psycopg.Error as error:
        ambiguous = commits_itself and broken(connection)
        raise classified(error, statement.name, ambiguous=ambiguous) from error
    except UnicodeEncodeError as error:
        raise _unspeakable(statement.name) from error
    finally:
        if (took := time.monotonic() - begun) > SLOW_S:
            say(
                Severity.WARN,
                "a statement was slow",
                action="slow_statement",
                statement=f"{statement.file}:{statement.name}",
                seconds=round(took, 3),
            )


@dataclass(frozen=True)
class Bound:
    """A statement with its parameters, to be sent with others."""

    statement: Statement
    params: Mapping[str, Any]


def run_together(connection: Connection, calls: Sequence[Bound]) -> list[Row]:
    """Execute `calls` in one transaction and one round trip; the rows of the last one.

    The server runs them in order, each with a snapshot of its own, and has the COMMIT with them:
    a client that is stopped once it has sent them holds no lock. Raises like `run`, and Internal
    inside somebody's transaction, which that COMMIT would end.
    """
    names = "+".join(call.statement.name for call in calls)
    if connection.info.transaction_status not in (
        TransactionStatus.IDLE,
        TransactionStatus.UNKNOWN,
    ):
        raise Internal(f"{names}: sent inside a transaction; it commits, so give it a connection")
    try:
        # The library's own block would send its COMMIT after the answers, a round trip later.
        with standbys.waited_for(connection, names), connection.pipeline():
            connection.execute("BEGIN")
            for call in calls:
                cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
                cursor.execute(call.statement.query, call.statement.given(call.params))
            connection.execute("COMMIT")
        return cursor.fetchall()
    except psycopg.Error as error:
        raise classified(error, names, ambiguous=broken(connection)) from error
    except UnicodeEncodeError as error:
        raise _unspeakable(names) from error
    finally:
        with suppress(psycopg.Error):  # of a connection that is broken by then, as its user sees
            connection.rollback()  # does nothing behind a COMMIT


def array(values: Iterable[object]) -> str:
    """`values`, whose text needs no quotes (numbers, UUIDs, words of ours), as an array's
    text. For the arrays of hot statements: psycopg looks at every element twice, and names a
    list of small numbers another type, under which the statement is prepared again."""
    return "{" + ",".join(map(str, values)) + "}"


def broken(connection: Connection) -> bool:
    """Whether the server can no longer be asked over this connection."""
    return connection.closed or connection.broken


def classified(error: psycopg.Error, what: str, *, ambiguous: bool = False) -> VpayError:
    """psycopg's error as one of ours; `what` names the statement. `ambiguous`: a commit was
    on its way when the connection broke."""
    state = error.sqlstate or ""
    text = f"{what}: {_first_line(error)}" + (f" [{state}]" if state else "")
    if ambiguous:
        return AmbiguousCommit(text)
    if state == "23505":
        return Conflict(text)
    if state == "42501":
        return RoleRefused(
            f"{text}: this database role may not; schema/roles.sql gives each its rights, and is"
            " run again after each migration"
        )
    if state == "23503":
        return InvalidRequest(text)
    if state[:2] in {"22", "23", "54", "42", "0A", "21"} or isinstance(
        error, psycopg.DataError | psycopg.ProgrammingError
    ):
        return Internal(text)
    return Storage(text)


def is_bad_data(error: VpayError) -> bool:
    """Whether the row itself is what the database refused (SQLSTATE class 22, 23, 54): no
    repetition of the statement can succeed."""
    cause = error.__cause__
    if isinstance(cause, UnicodeEncodeError):
        return True
    if not isinstance(cause, psycopg.Error):
        return False
    if isinstance(cause, psycopg.DataError) and cause.sqlstate is None:
        return True  # refused by the client library before it was sent: a NUL, say
    return (cause.sqlstate or "")[:2] in {"22", "23", "54"}


def _unspeakable(what: str) -> Internal:
    """A text that UTF-8 can't hold: psycopg lets Python's own error through."""
    return Internal(f"{what}: half a surrogate pair, which no text in Postgres can hold")


def _first_line(error: psycopg.Error) -> str:
    # Later lines may quote the row's values (DETAIL), which a log must not hold.
    return (str(error).splitlines() or [type(error).__name__])[0]
