"""The app: its routes, its beginning and end, and how an error becomes an answer."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vpay_tasks.config import Settings
from vpay_tasks.errors import Internal, Severity, VpayError
from vpay_tasks.parts import database, inbox, rails, send_alerts
from vpay_tasks.telemetry import flush_alerts, report_failure, say
from vpay_tasks.web import callbacks, events, health, receiver
from vpay_tasks.web.desk import Desk
from vpay_tasks.web.metrics import Seen

CLOSE: Final = {"Connection": "close"}
"""With every refusal: what is still coming of a request that was not read to its end would be
taken in for as long as its sender likes."""

SELDOM_S: Final = 60.0
"""Lower: whoever sends garbage fills the log; higher: that it goes on is seen late."""

Endpoint = Callable[[Request], Awaitable[Response]]


def make(settings: Settings) -> Starlette:
    """The app of these settings; connects nothing. Raises Configuration with every fault of
    the rails, or of the inbox."""
    send_alerts(settings, "web")
    threads, built = settings.web.threads, rails(settings)
    # One more than the threads, for the reader of verdicts.
    db = database(settings, application="vpay web", size=threads + 1)
    seen = Seen(built, callbacks.OUTCOMES)
    desk = Desk(settings, db, built, inbox(settings, db), seen)
    routes = [*health.routes(desk), *callbacks.routes(desk), *events.routes(desk)]
    routes += receiver.routes(desk)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # The pool opens with the first request, so after any fork, and Postgres may be down by
        # now: then requests are answered 503 until it is there.
        say(
            Severity.INFO,
            "web ready",
            action="boot",
            rails=sorted(desk.rails),
            inbox=sorted(desk.inbox.vendors),
            threads=threads,
        )
        yield
        desk.inbox.close()
        desk.database.close()
        say(Severity.INFO, "web ended", action="end")
        flush_alerts()

    app = Starlette(
        routes=[_answered(route) for route in routes],
        lifespan=lifespan,
        exception_handlers={HTTPException: _of_starlette},
    )
    # A path with one slash too many is 404. A redirect would name whatever Host was sent, and
    # look to a rail's operator as if the address were right: rails follow none.
    app.router.redirect_slashes = False
    return app


def quieten_the_server() -> None:
    """Send uvicorn's lines where ours go, and leave out its access log: a path is a stranger's
    to write, and may hold anything."""
    server = logging.getLogger("uvicorn")
    server.handlers.clear()
    server.propagate = True
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("uvicorn.error").filters[:] = [_Seldom()]


class _Seldom(logging.Filter):
    """Of uvicorn's warnings (a request that is no HTTP, an upgrade, too many at once) each once
    in SELDOM_S: they come by the request, so a stranger decides how many."""

    def __init__(self) -> None:
        super().__init__()
        self._quiet_until: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        sentence, now = str(record.msg), time.monotonic()
        if now < self._quiet_until.get(sentence, 0.0):
            return False
        self._quiet_until[sentence] = now + SELDOM_S
        return True


def _answered(route: Route) -> Route:
    """The route with every error of its endpoint turned into an answer. None gets past this:
    whoever is above would log it, with whatever a library has put into its text."""
    endpoint: Endpoint = route.endpoint

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except VpayError as error:
            return refusal(error, route.path)
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001 - a bug, told without a word of the request
            return refusal(Internal(_place_of(error)), route.path)

    return Route(route.path, answer, methods=sorted(route.methods or ()))


def refusal(error: VpayError, route: str) -> Response:
    """The answer for an error: the status of its class (errors.py) and its name, no more."""
    if error.severity is not Severity.INFO and error.http != 503:
        # What a sender got wrong is counted and not told, a line each would be theirs to
        # write; an outage was told when it began (desk.py).
        report_failure(error, "a request failed", action="web", route=route)
    # A 401 has to say what it asks for; a vendor's is about a signature, which has no name.
    asks = {"WWW-Authenticate": "Bearer"} if error.http == 401 and route.startswith("/v1/") else {}
    return JSONResponse({"error": error.word()}, error.http, {**CLOSE, **asks})


async def _of_starlette(_: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    word = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    return JSONResponse({"error": word}, error.status_code, {**(error.headers or {}), **CLOSE})


def _place_of(error: Exception) -> str:
    """Which error it is and where it was raised; its text may quote what was sent."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[-3:]]
    return f"{type(error).__name__} at {' > '.join(places)}"
