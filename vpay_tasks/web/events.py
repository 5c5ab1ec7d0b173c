"""`GET /v1/events` and `/v1/events/{id}`: a merchant catches up on what it was told.

The bytes are those that are stored and delivered, so a signature's payload and this answer
are the same. Whose events they are is the key's to say, never the request's.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vpay_tasks.config import Settings
from vpay_tasks.errors import Authentication, InvalidRequest
from vpay_tasks.web.desk import Desk
from vpay_tasks.webhooks import archive
from vpay_tasks.webhooks.archive import Page

_BEARER: Final = re.compile(r"Bearer ([\x21-\x7e]{1,255})", re.ASCII | re.IGNORECASE)
_LIMIT: Final = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_KNOWN: Final = {"limit", "after"}


def routes(desk: Desk) -> list[Route]:
    """None without a key in the settings: what can't be authenticated isn't there."""
    keys = _keys(desk.settings)
    if not keys:
        return []

    async def listed(request: Request) -> Response:
        merchant = _merchant(request, keys)
        after, limit = _asked(request)
        page = await desk.in_thread(
            lambda: archive.list_events(desk.database, merchant, after=after, limit=limit)
        )
        return Response(_rendered(page), media_type="application/json")

    async def one(request: Request) -> Response:
        merchant = _merchant(request, keys)
        event_id = str(request.path_params["id"])
        if not _ID.fullmatch(event_id):
            raise InvalidRequest("an event's id is letters, digits, _ and -")
        body = await desk.in_thread(lambda: archive.read_event(desk.database, merchant, event_id))
        return Response(body, media_type="application/json")

    return [
        Route("/v1/events", listed, methods=["GET"]),
        Route("/v1/events/{id}", one, methods=["GET"]),
    ]


def _keys(settings: Settings) -> list[tuple[bytes, str]]:
    """The hash of each key, and its merchant."""
    return [
        (_hashed(key.get_secret_value()), merchant.id)
        for merchant in settings.merchants
        for key in merchant.api_keys
    ]


def _merchant(request: Request, keys: list[tuple[bytes, str]]) -> str:
    """Whose key the request carries. Every key is compared, and each in the same time: how
    long it takes tells neither which one was near nor how many there are before it."""
    given = _BEARER.fullmatch(request.headers.get("authorization", ""))
    asked = _hashed(given[1]) if given is not None else b""
    found = [merchant for key, merchant in keys if hmac.compare_digest(key, asked)]
    if not found:
        raise Authentication("no key, or none of ours")
    return found[0]


def _hashed(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _asked(request: Request) -> tuple[str | None, int]:
    given = request.query_params
    if set(given) - _KNOWN or any(len(given.getlist(key)) > 1 for key in given):
        raise InvalidRequest("limit and after, each once at the most")
    limit, after = given.get("limit", str(archive.PAGE)), given.get("after")
    if not _LIMIT.fullmatch(limit) or (after is not None and not _ID.fullmatch(after)):
        raise InvalidRequest("limit is a number, after an event's id")
    return after, int(limit)


def _rendered(page: Page) -> bytes:
    """The stored bytes between brackets: parsed and written anew they might differ."""
    more = b"true" if page.more else b"false"
    bodies = b",".join(event.body for event in page.events)
    return b'{"object":"list","data":[' + bodies + b'],"has_more":' + more + b"}"
