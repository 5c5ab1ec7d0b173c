"""Five hundred receivers as one process: every address of 127/8, plain and by TLS.

`python -m tests.webhooks.many_hosts CERTIFICATE` prints its two ports and serves until its
standard input ends. In turn they are polite, refuse at length, send nothing, and hang up.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import sys

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LONG = b"HTTP/1.1 500 No\r\nContent-Length: 65536\r\n\r\n" + b"x" * 65_536
REPLIES = (OK, OK, LONG, b"")
_turn = itertools.cycle(REPLIES)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        if reply := next(_turn):
            writer.write(reply)
            await writer.drain()
        else:
            writer.transport.abort()
    with contextlib.suppress(OSError):
        writer.close()


async def _main(certificate: str) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    ports = []
    for context in (None, tls):
        server = await asyncio.start_server(_answer, "0.0.0.0", 0, ssl=context, backlog=1_024)
        ports.append(server.sockets[0].getsockname()[1])
    print(*ports, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
