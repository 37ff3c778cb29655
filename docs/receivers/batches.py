from fastapi import Request, Response
from psycopg.types.json import Json
from receiver import app, pool, webhook
from standardwebhooks import WebhookVerificationError


@app.post("/batches")
async def receive_batch(request: Request) -> Response:
    try:
        events = webhook.verify(await request.body(), dict(request.headers))
    except (WebhookVerificationError, ValueError) as error:
        return Response(str(error), 401)
    async with pool.connection() as db:  # one transaction for all of them
        noted = await db.execute("INSERT INTO processed_events (event_id) SELECT unnest(%s::text[]) ORDER BY 1 "
                                 "ON CONFLICT DO NOTHING RETURNING event_id", [[event["id"] for event in events]])
        new = {event_id for event_id, in await noted.fetchall()}
        for event in events:  # in their order
            if event["id"] in new:
                await db.execute("INSERT INTO work (event_id, event_type, data) VALUES (%s, %s, %s)",
                                 [event["id"], event["type"], Json(event["data"])])
    return Response(status_code=204)
