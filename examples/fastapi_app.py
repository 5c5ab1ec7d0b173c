"""Vendors' webhooks taken in by an application of your own: `uvicorn fastapi_app:app`.

The settings are those of the workers (`VPAY_CONFIG`). The body must be the bytes as they came:
a framework that has parsed them has lost what was signed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from vpay_tasks import config, wiring

settings = config.load()
db = wiring.database(settings)  # connects when it is first used
inbox = wiring.inbox(settings, db)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    inbox.close()
    db.close()


app = FastAPI(lifespan=lifespan)


@app.post("/webhooks/{vendor}")
async def webhook(vendor: str, request: Request) -> Response:
    # `receive` may wait for two seconds: in a thread, or the loop would stand still.
    body = await request.body()
    answer = await run_in_threadpool(inbox.receive, body, request.headers.raw, vendor)
    return Response(answer.body, answer.status, media_type=answer.content_type)
