"""The endpoint: processes each event once, and responds with 2xx after its commit."""

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
from fastapi import FastAPI, Request, Response
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from standardwebhooks import Webhook, WebhookVerificationError
from starlette.requests import ClientDisconnect

from .screen import Screen


@dataclass
class Behaviour:
    """Behaviour that a developer wants the sender to cope with."""

    fail: float = 0  # the share of requests that get `status`
    status: int = 500
    retry_after: str | None = None
    delay: float = 0  # seconds between commit and response


def make_app(secret: str, database: str, behaviour: Behaviour, screen: Screen) -> FastAPI:
    webhook = Webhook(secret)
    pool = AsyncConnectionPool(database, min_size=1, max_size=8, timeout=5, open=False)

    @asynccontextmanager
    async def lifespan(_):
        async with pool:
            yield

    app = FastAPI(lifespan=lifespan, openapi_url=None)

    async def process(event_id: str, event_type: str | None, body: bytes) -> bool:
        """Returns False for a duplicate. A second concurrent delivery waits here for the end of the first."""
        async with pool.connection() as db:  # one transaction, committed at the end of the block
            inserted = await db.execute("INSERT INTO processed_events (event_id) VALUES (%s) ON CONFLICT DO NOTHING", [event_id])
            if inserted.rowcount == 0:
                return False
            await db.execute("INSERT INTO work (event_id, event_type, body) VALUES (%s, %s, %s)", [event_id, event_type, body])
        return True

    @app.api_route("/{path:path}", methods=["POST", "PUT", "PATCH"])
    async def receive(request: Request) -> Response:
        try:
            body = await request.body()  # the exact bytes that were signed
        except ClientDisconnect:
            screen.say("the sender hung up before its request was whole")
            return Response(status_code=400)
        headers = standard_names(dict(request.headers))
        shown = screen.request(request.method, request.url.path, headers, body)
        if random.random() < behaviour.fail:
            screen.answered(shown, behaviour.status, "told to fail")
            return Response(f"told to fail with {behaviour.status}", behaviour.status,
                            {"Retry-After": behaviour.retry_after} if behaviour.retry_after else None)
        try:
            webhook.verify(body, headers, json_parse=False)
        except (WebhookVerificationError, ValueError) as error:
            screen.refused(shown, 401, error)
            return Response("bad signature", 401)
        try:
            new = await process(headers["webhook-id"], shown.type, body)
        except (psycopg.Error, PoolTimeout) as error:
            screen.answered(shown, 503, f"database: {error}")
            return Response("database", 503)
        if behaviour.delay:
            screen.say(f"{shown.id} committed; the answer comes in {behaviour.delay:g} s")
            await asyncio.sleep(behaviour.delay)
        screen.answered(shown, 204, "done" if new else "duplicate, dropped")
        return Response(status_code=204)

    return app


def standard_names(headers: dict[str, str]) -> dict[str, str]:
    """Svix's older names have the same meaning."""
    for name in ("id", "timestamp", "signature"):
        if f"svix-{name}" in headers:
            headers.setdefault(f"webhook-{name}", headers[f"svix-{name}"])
    return headers
