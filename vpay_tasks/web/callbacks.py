"""`POST /provider/{code}/callback`: a rail says that something happened to a payment.

Unauthenticated by nature, so nothing of it is believed but which payment to ask about. It is
answered alike whether that payment exists or not.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vpay_tasks.errors import NotFound, VpayError
from vpay_tasks.payments import callbacks
from vpay_tasks.web import body
from vpay_tasks.web.desk import Desk

BODY_MAX: Final = 16 * 1_024
"""Bytes. The longest callback that a rail documents has under 1 KiB; lower: a rail that adds
fields is refused; higher: more memory for whoever floods us."""

REFUSED: Final = "refused"
FAILED: Final = "failed"
OUTCOMES: Final = (*(outcome.value for outcome in callbacks.Outcome), REFUSED, FAILED)
"""As they are counted: what became of it; REFUSED: it can't be read; FAILED: we could not."""

METHODS: Final = ("POST", "PUT")
"""MTN documents that it may use either."""


def routes(desk: Desk) -> list[Route]:
    async def callback(request: Request) -> Response:
        code = request.path_params["code"]
        if code not in desk.rails:
            desk.seen.callback("unknown", REFUSED)
            raise NotFound("a callback of no rail of ours")
        try:
            outcome = await _take(desk, code, request)
        except VpayError as error:
            # 4xx: what was sent can't be read. 5xx: it may be sent again, and need not be.
            desk.seen.callback(code, REFUSED if error.http < 500 else FAILED)
            raise
        desk.seen.callback(code, outcome.value)
        # 2xx for whatever is well-formed: a rail that gets anything else sends it again, for
        # hours, and after some failures stops to call at all.
        return JSONResponse({"received": True})

    return [Route("/provider/{code}/callback", callback, methods=list(METHODS))]


async def _take(desk: Desk, code: str, request: Request) -> callbacks.Outcome:
    web = desk.settings.web
    raw = await body.read(request, at_most=BODY_MAX, within=web.body_deadline)
    named = desk.rails[code].parse_callback(raw)
    return await desk.in_thread(
        lambda: callbacks.take(desk.database, code, named, within=web.patience)
    )
