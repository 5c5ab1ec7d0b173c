"""A request's body, read within bounds and before anything looks into it."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

from vpay_tasks.errors import InvalidRequest

LENGTH_DIGITS: Final = 18
"""Of a Content-Length: more digits than any size has; Python would read thousands of them."""


class TooLarge(InvalidRequest):
    http = 413


class TooSlow(InvalidRequest):
    http = 408


class CutOff(InvalidRequest):
    """The sender hung up; nobody reads the answer."""


async def read(request: Request, *, at_most: int, within: float) -> bytes:
    """The whole body: `at_most` bytes, all of them here `within` seconds from now. Raises
    InvalidRequest (TooLarge, TooSlow, CutOff), and then the connection must be closed: what
    is still coming would be taken for the next request.

    A sender that says a larger size beforehand is refused before a byte is read. The deadline
    is for the body as a whole: one for each piece would let a sender drip for ever. Whoever
    waits here holds a socket and at most `at_most` bytes, and nobody up.
    """
    said = request.headers.get("content-length", "")
    if said and (not said.isascii() or not said.isdigit() or len(said) > LENGTH_DIGITS):
        raise InvalidRequest("a Content-Length that is no number")
    if said and int(said) > at_most:
        raise TooLarge(f"a body of more than {at_most} bytes")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(within):
            async for part in request.stream():
                size += len(part)
                if size > at_most:
                    raise TooLarge(f"a body of more than {at_most} bytes")
                parts.append(part)
    except TimeoutError:
        raise TooSlow(f"a body that took longer than {within:g} s") from None
    except ClientDisconnect:
        raise CutOff("the sender hung up within the body") from None
    return b"".join(parts)
