"""I13: secrets that were planted to be recognised, looked for where nobody may read one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from tests.canaries import Search

COLUMNS: Final = """
SELECT c.table_schema, c.table_name, c.column_name, c.data_type
FROM information_schema.columns AS c
JOIN information_schema.tables AS t USING (table_schema, table_name)
WHERE c.table_schema IN ('vpay', 'audit')
    AND t.table_type = 'BASE TABLE'
    AND c.data_type IN ('text', 'character varying', 'json', 'jsonb', 'bytea', 'ARRAY')
ORDER BY c.table_schema, c.table_name, c.ordinal_position
"""
HOLDING: Final = (
    "SELECT count(*) FROM {table} WHERE EXISTS"
    " (SELECT FROM unnest(%(needles)s::bytea[]) AS needle WHERE position(needle IN {bytes}) > 0)"
)
ANYWHERE: Final = (
    "SELECT EXISTS (SELECT FROM (SELECT DISTINCT {bytes} AS held FROM {table}) AS texts"
    " CROSS JOIN unnest(%(needles)s::bytea[]) AS needle WHERE position(needle IN held) > 0)"
)
"""Most columns say few things many times; each is looked at once."""


def in_database(connection: psycopg.Connection[Any], canaries: Mapping[str, str]) -> Iterator[str]:
    """Every column that can hold a text, of every table, in every spelling. No column is left
    out: what must be kept of a payer is encrypted, and of a secret at most a digest."""
    needles = Search(canaries).needles
    every = sorted({needle for spelled in needles.values() for needle in spelled})
    counting = dict(_questions(connection, HOLDING))
    for where, anywhere in _questions(connection, ANYWHERE):
        found = connection.execute(anywhere, {"needles": every}).fetchone()
        if found is None or not found[0]:
            continue
        for canary, spelled in needles.items():
            row = connection.execute(counting[where], {"needles": sorted(spelled)}).fetchone()
            if row is not None and row[0]:
                yield f"{canary} is readable in {row[0]} rows of {where}"


def texts(connection: psycopg.Connection[Any]) -> Iterator[tuple[str, list[bytes]]]:
    """Whatever stands in each of those columns, once."""
    for where, query in _questions(connection, "SELECT DISTINCT {bytes} FROM {table}"):
        yield where, [row[0] for row in connection.execute(query) if row[0]]


def _questions(
    connection: psycopg.Connection[Any], shape: LiteralString
) -> Iterator[tuple[str, sql.Composed]]:
    """For each column: its name, and `shape` about its table and its bytes."""
    for schema, table, column, kind in connection.execute(COLUMNS.encode()).fetchall():
        name = sql.Identifier(column)
        as_bytes = name if kind == "bytea" else sql.SQL("convert_to({}::text, 'UTF8')").format(name)
        query = sql.SQL(shape).format(table=sql.Identifier(schema, table), bytes=as_bytes)
        yield f"{schema}.{table}.{column}", query


def in_files(
    folder: Path, canaries: Mapping[str, str], *, but: Iterable[Path] = ()
) -> Iterator[str]:
    """Every file below `folder`, but those below `but`."""
    for name, path in Search(canaries).in_files(folder, but=but):
        yield f"{name} is readable in {path}"
