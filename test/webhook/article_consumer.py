"""The consumer of the outbox articles, as they print it: JSON in, a table of processed events, no signature."""

import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from psycopg.types.json import Json
from psycopg_pool import AsyncConnectionPool

pool = AsyncConnectionPool(os.environ["DATABASE_URL"], open=False)


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/events")
async def consume(request: Request):
    data = await request.json()
    async with pool.connection() as db:
        inserted = await db.execute("INSERT INTO processed_events (event_id) VALUES (%s) ON CONFLICT DO NOTHING", [data["id"]])
        if inserted.rowcount == 0:
            return {"status": "duplicate"}
        await db.execute("INSERT INTO work (event_id, event_type, data) VALUES (%s, %s, %s)", [data["id"], data["type"], Json(data["payload"])])
    return {"status": "ok"}
