"""Every statement of every .sql file is understood by Postgres on the real schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest

import vpay_tasks.store
from vpay_tasks.store import sql
from vpay_tasks.store.db import Connection, connect

FILES = sorted(Path(vpay_tasks.store.__path__[0]).glob("*.sql"))
STATEMENTS = [
    pytest.param(statement, id=f"{file.stem}:{name}")
    for file in FILES
    for name, statement in sql.load(file.stem).items()
]
UTILITY = ("LISTEN ", "NOTIFY ")
"""Postgres prepares no such statement; they take no parameters, so they are run."""


@pytest.fixture(scope="module")
def session(clone: Callable[[], AbstractContextManager[str]]) -> Iterator[Connection]:
    with clone() as url, connect(url, application="tests") as connection:
        yield connection


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statement_prepares_on_the_migrated_schema(
    statement: sql.Statement, session: Connection
) -> None:
    if statement.text.startswith(UTILITY):
        session.execute(statement.query)
        return
    try:
        session.execute(b"PREPARE probe AS " + statement.query)
        session.execute("DEALLOCATE probe")
    except (psycopg.errors.IndeterminateDatatype, psycopg.errors.AmbiguousParameter) as error:
        pytest.fail(f"{statement.file}:{statement.name}: add a cast, as %(x)s::bigint: {error}")


def test_every_file_has_statements() -> None:
    assert FILES
    assert [file.name for file in FILES if not sql.load(file.stem)] == []
