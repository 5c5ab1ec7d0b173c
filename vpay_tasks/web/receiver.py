"""`POST /inbox/{vendor}[/{account}]`: a vendor's webhook, kept before it is answered.

A thread is taken only to verify and keep it. The wait for the verdict costs none, so that
grants that are slow, or thousands that wait, keep nobody's delivery from being kept.
"""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vpay_tasks.errors import NotFound
from vpay_tasks.inbox.receive import BODY_MAX, Answer, Waiting
from vpay_tasks.web import body
from vpay_tasks.web.desk import Desk


def routes(desk: Desk) -> list[Route]:
    async def receive(request: Request) -> Response:
        arrived = time.monotonic()
        vendor = request.path_params["vendor"]
        if vendor not in desk.inbox.vendors:
            raise NotFound("a webhook of no vendor of ours")  # before a byte of it is read
        account = request.path_params.get("account", "")
        within = desk.settings.web.body_deadline
        # The raw bytes: never decompressed, since the signature is of what was sent.
        raw = await body.read(request, at_most=BODY_MAX, within=within)
        headers = request.headers.raw
        taken = await desk.in_thread(
            lambda: desk.inbox.take_in(raw, headers, vendor, account, arrived=arrived)
        )
        answer = taken if isinstance(taken, Answer) else await _verdict(desk, taken)
        return Response(answer.body, answer.status, media_type=answer.content_type)

    return [
        Route("/inbox/{vendor}", receive, methods=["POST"]),
        Route("/inbox/{vendor}/{account}", receive, methods=["POST"]),
    ]


async def _verdict(desk: Desk, kept: Waiting) -> Answer:
    """What became of it, if that is known in time."""
    with desk.inbox.watch.waiting(kept.row_id) as future:
        try:
            async with asyncio.timeout(max(0.0, kept.until - time.monotonic())):
                return kept.in_time(await asyncio.wrap_future(future))
        except TimeoutError:
            return kept.pending()
