"""pgqueuer's no-op, on asyncpg: `install`, `fill N`, `work BATCH`."""

from __future__ import annotations

import asyncio
import os
import sys

import asyncpg
from pgqueuer import PgQueuer, Queries


async def main(verb: str, number: int) -> None:
    connection = await asyncpg.connect(os.environ["BENCH_DSN"])
    queries = Queries.from_asyncpg_connection(connection)
    if verb == "install":
        await queries.install()
    elif verb == "fill":
        for _ in range(0, number, 1_000):
            await queries.enqueue(["noop"] * 1_000, [None] * 1_000, [0] * 1_000)
    else:
        worker = PgQueuer.from_asyncpg_connection(connection)

        @worker.entrypoint("noop")
        async def noop(job: object) -> None:
            """Nothing."""

        await worker.run(batch_size=number)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
