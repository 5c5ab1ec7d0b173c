"""schema/schema.sql: what the migrations make, as one file to read and to compare.

Run it (`make schema`) to write the file anew. It starts a Postgres of its own.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from vpay_sandbox.postgres import Postgres
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect

FILE: Final = Path(__file__).parents[2] / "schema" / "schema.sql"
HEAD: Final = (
    "-- What the migrations of this folder make, dumped by `make schema` and tested equal.\n"
    "-- Read it; never run or edit it.\n\n"
)


def dump(url: str, pg_dump: Path) -> str:
    """The schema `vpay` of a migrated database as normalised SQL."""
    argv = [str(pg_dump), "--schema-only", "--schema=vpay", "--no-owner", "--no-privileges", url]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return HEAD + normalised(done.stdout)


def normalised(text: str) -> str:
    """Without comments, session settings and the random guards of pg_dump 18."""
    noise = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)\n", re.M)
    return re.sub(r"\n{3,}", "\n\n", noise.sub("", text)).strip() + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Postgres(Path(folder)) as server:
        with connect(server.url(), application="make schema") as connection:
            migrate.apply(connection)
        FILE.write_text(dump(server.url(), server.bin("pg_dump")), "utf-8")
    print(f"wrote {FILE.relative_to(FILE.parents[1])}")


if __name__ == "__main__":
    main()
