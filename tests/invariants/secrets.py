"""I13: secrets that were planted to be recognised, looked for where nobody may read one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

TEXTS: Final = """
SELECT c.table_schema, c.table_name, c.column_name, c.data_type
FROM information_schema.columns AS c
JOIN information_schema.tables AS t USING (table_schema, table_name)
WHERE c.table_schema IN ('vpay', 'audit')
    AND t.table_type = 'BASE TABLE'
    AND c.data_type IN ('text', 'jsonb', 'bytea', 'ARRAY')
ORDER BY c.table_schema, c.table_name, c.ordinal_position
"""
CHUNK: Final = 1 << 20


def in_database(connection: psycopg.Connection[Any], canaries: Mapping[str, str]) -> Iterator[str]:
    """Every column that can hold a text, of every table; bytes as the text that they may be."""
    for schema, table, column, kind in connection.execute(TEXTS.encode()).fetchall():
        shape = "encode({}, 'escape')" if kind == "bytea" else "{}::text"
        text = sql.SQL(shape).format(sql.Identifier(column))
        for name, canary in canaries.items():
            query = sql.SQL("SELECT count(*) FROM {} WHERE position({} IN {}) > 0").format(
                sql.Identifier(schema, table), sql.Literal(canary), text
            )
            row = connection.execute(query).fetchone()
            if row is not None and row[0]:
                yield f"{name} is readable in {row[0]} rows of {schema}.{table}.{column}"


def in_files(folder: Path, canaries: Mapping[str, str]) -> Iterator[str]:
    """Every file below `folder`."""
    longest = max(map(len, canaries.values()), default=1)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        left = {name: value.encode() for name, value in canaries.items()}
        tail = b""
        with path.open("rb") as file:
            while left and (chunk := file.read(CHUNK)):
                block = tail + chunk
                for name in [name for name, value in left.items() if value in block]:
                    del left[name]
                    yield f"{name} is readable in {path.relative_to(folder)}"
                tail = block[-longest:]
