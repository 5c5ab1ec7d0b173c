"""schema.sql is what the migrations make."""

from __future__ import annotations

from pathlib import Path

from tests.schema import dump
from vpay_sandbox.postgres import Postgres


def test_schema_sql_is_what_the_migrations_make(dsn: str, tmp_path: Path) -> None:
    found = dump.dump(dsn, Postgres(tmp_path).bin("pg_dump"))
    assert dump.FILE.read_text("utf-8") == found, "run `make schema` and look at the difference"
