"""Whole tables, as they were and as they are: what a write did not mean to touch shows, too."""

from __future__ import annotations

from typing import Any

from vpay_tasks.store.sql import Connection

Rows = dict[Any, dict[str, Any]]


def everything(connection: Connection, table: str, *key: str) -> Rows:
    """Every row of `vpay.table`, by its `key`: its id, or the columns that are named."""
    cursor = connection.execute(f"SELECT * FROM vpay.{table}".encode())
    names = [column.name for column in cursor.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    if not key:
        return {row["id"]: row for row in found}
    return {tuple(row[column] for column in key): row for row in found}


def changes(before: Rows, after: Rows) -> Rows:
    """What is new, by row and column; `gone` for a row that is no more, all of a new one."""
    told: Rows = {}
    for key in before | after:
        was, now = before.get(key, {}), after.get(key)
        told[key] = (
            {"gone": True}
            if now is None
            else {column: value for column, value in now.items() if value != was.get(column)}
        )
    return {key: new for key, new in told.items() if new}


def without_indexes(connection: Connection) -> None:
    """An index gives rows in its own order, also to a statement that asks for none."""
    for way in ("indexscan", "bitmapscan"):
        connection.execute(f"SET enable_{way} = off".encode())
