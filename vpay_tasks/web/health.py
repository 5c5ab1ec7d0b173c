"""`GET /healthz`: this process answers. `GET /readyz`: it could do its work, too. `GET /metrics`,
if the settings allow it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vpay_tasks.errors import Severity, Storage, VpayError, describe
from vpay_tasks.store import migrate, vitals
from vpay_tasks.telemetry import say
from vpay_tasks.web.desk import Desk


def routes(desk: Desk) -> list[Route]:
    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(_: Request) -> Response:
        try:
            await desk.in_thread(lambda: _look(desk))
        except VpayError as error:
            say(Severity.WARN, "not ready", action="readyz", error=describe(error))
            # 503 whatever it is: a balancer asks whether to send requests here, not why not.
            return JSONResponse({"ready": False}, 503)
        return JSONResponse({"ready": True})

    async def metrics(_: Request) -> Response:
        return Response(desk.seen.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    found = [Route("/healthz", live), Route("/readyz", ready)]
    if desk.settings.web.metrics:
        found.append(Route("/metrics", metrics))
    return found


def _look(desk: Desk) -> None:
    with desk.database.connection(patience=desk.settings.web.patience) as connection:
        migrate.require_current(connection)
        if not vitals.takes_writes(connection):
            raise Storage("the database is read-only: a standby, or a primary that was made so")
