"""I13: secrets that were planted to be recognised, looked for where nobody may read one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
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


def in_database(connection: psycopg.Connection[Any], canaries: Mapping[str, str]) -> Iterator[str]:
    """Every column that can hold a text, of every table, in every spelling. No column is left
    out: what must be kept of a payer is encrypted, and of a secret at most a digest."""
    needles = Search(canaries).needles
    every = {needle for spelled in needles.values() for needle in spelled}
    for where, query in _questions(connection, HOLDING):

        def rows(spelled: Collection[bytes], query: sql.Composed = query) -> int:
            row = connection.execute(query, {"needles": sorted(spelled)}).fetchone()
            return int(row[0]) if row is not None else 0

        if rows(every):  # which is rare, and one by one they take long
            for canary, spelled in needles.items():
                if count := rows(spelled):
                    yield f"{canary} is readable in {count} rows of {where}"


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
