import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from psycopg.types.json import Json
from psycopg_pool import AsyncConnectionPool
from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_SECRET"])  # whsec_…, as in the sink's user mapping
pool = AsyncConnectionPool(os.environ["DATABASE_URL"], open=False)


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/hooks")
async def receive(request: Request) -> Response:
    body = await request.body()  # the bytes, not request.json()
    try:
        event = webhook.verify(body, dict(request.headers))
    except (WebhookVerificationError, ValueError) as error:
        return Response(str(error), 401)
    async with pool.connection() as db:  # one transaction, committed at the end of the block
        noted = await db.execute("INSERT INTO processed_events (event_id) VALUES (%s) ON CONFLICT DO NOTHING", [event["id"]])
        if noted.rowcount == 1:
            await db.execute("INSERT INTO work (event_id, event_type, data) VALUES (%s, %s, %s)",
                             [event["id"], event["type"], Json(event["data"])])
    return Response(status_code=204)
