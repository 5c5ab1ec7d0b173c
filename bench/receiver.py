"""A receiver for bench/deliveries.py: fast, and as bad as a path says.

/ok/… answers 200, /fail/… 500, /slow/… 200 after half a second, /hang/… nothing at all. Each
request is a line of the journal: when it came (CLOCK_MONOTONIC, which all processes of this
machine share), its path, its event.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

SLOW_S = 0.5


class Request(asyncio.Protocol):
    """One connection; ours send one request over each."""

    def __init__(self, journal: list[str]) -> None:
        self._journal = journal
        self._raw = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        came = time.monotonic_ns()
        self._raw += data
        head, end, body = self._raw.partition(b"\r\n\r\n")
        if not end:
            return
        line, *rest = head.decode("latin-1").split("\r\n")
        headers = dict(text.lower().split(": ", 1) for text in rest)
        if len(body) < int(headers["content-length"]):
            return
        path = line.split(" ")[1]
        self._journal.append(f"{came} {path} {headers['vpay-event-id']}\n")
        match path.split("/")[1]:
            case "hang":
                return
            case "slow":
                asyncio.get_running_loop().call_later(SLOW_S, self._answer, "200 OK")
            case "fail":
                self._answer("500 No")
            case _:
                self._answer("200 OK")

    def _answer(self, status: str) -> None:
        assert self._transport is not None
        self._transport.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        self._transport.close()


async def serve(port: int, to: Path) -> None:
    journal: list[str] = []
    server = await asyncio.get_running_loop().create_server(
        lambda: Request(journal), "127.0.0.1", port, backlog=1_024
    )
    with to.open("w") as file:
        async with server:
            while True:
                await asyncio.sleep(0.05)
                lines, journal[:] = journal[:], []
                file.writelines(lines)
                file.flush()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
